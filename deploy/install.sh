#!/bin/sh
# Install the service: deploy/install.sh [PREFIX [DATA]]
#   PREFIX  the virtual environment, /opt/panda-mdp
#   DATA    the folder of the database and the key, /var/lib/panda-mdp
# PANDA_MDP_SOURCE installs something else than this checkout (a wheel, a name with a version); PYTHON is
# the interpreter. Starts nothing and changes nothing outside the two folders.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/opt/panda-mdp}
data=${2:-/var/lib/panda-mdp}
source=${PANDA_MDP_SOURCE:-$here/..}

"${PYTHON:-python3}" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --disable-pip-version-check "$source[server]"
mkdir -p "$data"
chmod 0700 "$data"
sed -e "s|@PREFIX@|$prefix|g" -e "s|@DATA@|$data|g" "$here/panda-mdp.service" > "$prefix/panda-mdp.service"
"$prefix/bin/panda-mdp" serve --help > /dev/null
echo "installed in $prefix; data in $data; unit in $prefix/panda-mdp.service"
