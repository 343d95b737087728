#!/bin/sh
# Restore a backup: panda-mdp-restore FOLDER KEY
# PANDA_MDP_DATABASE is where to: a SQLite file that does not exist, or an empty PostgreSQL database. KEY must not
# exist either, or be the same key. Stop the service first.
set -eu
umask 077
folder=$1
key=$2
(cd "$folder" && sha256sum --check --quiet SHA256SUMS)
if [ -e "$key" ]; then
  cmp -s "$folder/operator.key" "$key" || { echo "$key is another key than the backup's" >&2; exit 1; }
fi
case $PANDA_MDP_DATABASE in
  postgres*://*)
    pg_restore --exit-on-error --no-owner --dbname="$PANDA_MDP_DATABASE" "$folder/database"
    ;;
  *)
    [ ! -e "$PANDA_MDP_DATABASE" ] || { echo "$PANDA_MDP_DATABASE is there already" >&2; exit 1; }
    cp "$folder/database" "$PANDA_MDP_DATABASE"
    ;;
esac
[ -e "$key" ] || cp "$folder/operator.key" "$key"
echo "restored; reports and tables since the backup are lost, and clients that saw later ones will say so"
