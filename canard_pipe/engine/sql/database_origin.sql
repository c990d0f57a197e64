-- Tells this database from any other: when its first schema was installed.
SELECT epoch_us(min(installed_at)) FROM canard_absurd.schema_version;
