#!/bin/sh
# Back up a running service: panda-mdp-backup KEY FOLDER
# PANDA_MDP_DATABASE is the database, as for `panda-mdp serve`. FOLDER must not exist; it gets the database of one
# moment, the operator's key, and a list of SHA-256. It is as secret as the service itself.
set -eu
umask 077
key=$1
folder=$2
case $PANDA_MDP_DATABASE in
  postgres*://*) ;;
  *)
    [ -f "$PANDA_MDP_DATABASE" ] || {
      echo "$PANDA_MDP_DATABASE: there is no database to back up; set PANDA_MDP_DATABASE to the server's" >&2
      exit 1
    }
    ;;
esac
[ -f "$key" ] || { echo "$key: there is no operator's key to back up; give the server's" >&2; exit 1; }
mkdir "$folder"
case $PANDA_MDP_DATABASE in
  postgres*://*) pg_dump --format=custom --file="$folder/database" "$PANDA_MDP_DATABASE" ;;
  *) "@PREFIX@/bin/python" - "$PANDA_MDP_DATABASE" "$folder/database" <<'PYTHON'
import sqlite3
import sys

source, target = (sqlite3.connect(path) for path in sys.argv[1:])
with target:
    source.backup(target)
if target.execute("PRAGMA integrity_check").fetchone() != ("ok",):
    sys.exit("the copy does not pass its integrity check")
target.close()
PYTHON
  ;;
esac
cp "$key" "$folder/operator.key"
(cd "$folder" && sha256sum database operator.key > SHA256SUMS)
