#!/bin/sh
# Starts a user's server for JupyterHub, as that user: singleuser.sh SERVER OPTION...
#
# NNCOURSE_HANDOUT  the folder that is copied to ~/nn-course if that is not there: a hand-out, unpacked (default: a
#                   folder with the course's own notebooks/)
set -eu
umask 077 # what the user makes, other users cannot read
course=$(cd "$(dirname "$0")/.." && pwd)
# No folder is named as the package: beside a notebook Python would take it for that.
if [ ! -e "$HOME/nn-course" ]; then
    new=$(mktemp -d "$HOME/.nn-course-XXXXXX")
    if [ -n "${NNCOURSE_HANDOUT:-}" ]; then
        cp -R "$NNCOURSE_HANDOUT" "$new/nn-course"
    else
        mkdir "$new/nn-course"
        cp -R "$course/notebooks" "$new/nn-course/"
    fi
    chmod -R u+w "$new/nn-course"
    mv "$new/nn-course" "$HOME/nn-course" # at once: an interrupted copy is no course
    rmdir "$new"
    # matplotlib lists the fonts once for each user, which takes seconds: now, and not in the first notebook.
    "$course/.venv/bin/python" -c "import matplotlib.font_manager" >/dev/null 2>&1 &
fi
PATH="$course/.venv/bin:$PATH" # nncourse and its python, in terminals too
export PATH
exec "$@"
