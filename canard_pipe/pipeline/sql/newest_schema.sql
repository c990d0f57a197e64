SELECT max(version) FROM canard_absurd.schema_version;
