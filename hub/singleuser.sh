#!/bin/sh
# Starts a user's server for JupyterHub, as that user: singleuser.sh SERVER OPTION...
#
# NNCOURSE_HANDOUT  the folder that is copied to ~/nncourse if that is not there (default: the course's notebooks/)
set -eu
umask 077 # what the user makes, other users cannot read
course=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -e "$HOME/nncourse" ]; then
    new=$(mktemp -d "$HOME/.nncourse-XXXXXX")
    cp -R "${NNCOURSE_HANDOUT:-$course/notebooks}" "$new/nncourse"
    chmod -R u+w "$new/nncourse"
    mv "$new/nncourse" "$HOME/nncourse" # at once: an interrupted copy is no course
    rmdir "$new"
fi
PATH="$course/.venv/bin:$PATH" # nncourse and its python, in terminals too
export PATH
exec "$@"
