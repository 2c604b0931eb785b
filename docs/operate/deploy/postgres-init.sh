#!/bin/sh
# The image of PostgreSQL runs this once, on an empty volume. It makes an ordinary user that owns the
# database and may make the roles of recall-server, and a user for backups.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
  --set password="$(cat /run/secrets/db_password)" <<'SQL'
CREATE ROLE recall LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE recall OWNER recall ENCODING 'UTF8' TEMPLATE template0;
CREATE ROLE recall_backup LOGIN BYPASSRLS;
GRANT pg_read_all_data TO recall_backup;
SQL
