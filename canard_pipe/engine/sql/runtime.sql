-- F5. The extension's version is known once it is loaded.
SELECT version(),
       (SELECT max(version) FROM canard_absurd.schema_version),
       (SELECT max(extension_version) FROM duckdb_extensions() WHERE extension_name = 'quack' AND loaded);
