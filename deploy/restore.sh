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
    pg_restore --exit-on-error --single-transaction --no-owner --dbname="$PANDA_MDP_DATABASE" "$folder/database"
    ;;
  *)
    # SQLite would write what a lost database left in its log into the restored one, which is then neither.
    for file in "$PANDA_MDP_DATABASE" "$PANDA_MDP_DATABASE-wal" "$PANDA_MDP_DATABASE-shm" "$PANDA_MDP_DATABASE-journal"; do
      [ ! -e "$file" ] || {
        echo "$file is there already; move the old database aside together with its -wal, -shm and -journal" >&2
        exit 1
      }
    done
    cp "$folder/database" "$PANDA_MDP_DATABASE"
    "@PREFIX@/bin/python" - "$PANDA_MDP_DATABASE" <<'PYTHON' || { rm -f "$PANDA_MDP_DATABASE"; exit 1; }
import sqlite3
import sys

restored = sqlite3.connect(sys.argv[1])
if restored.execute("PRAGMA quick_check").fetchone() != ("ok",):
    sys.exit("the restored database does not pass its check; take another backup")
restored.close()
PYTHON
    ;;
esac
[ -e "$key" ] || cp "$folder/operator.key" "$key"
echo "restored; reports and tables since the backup are lost, and clients that saw later ones will say so"
