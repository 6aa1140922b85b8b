#!/bin/sh
# Starts a user's server for JupyterHub, as that user: singleuser.sh SERVER OPTION...
#
# NNCOURSE_HANDOUT  the folder of an unpacked hand-out, which the first start copies to ~/nn-course (default: the
#                   course's own notebooks, without outputs)
# NNCOURSE_LANG     the language of the course, such as es (default: en)
#
# Each later start brings the course's changes into the copy, and keeps the user's own work. ~/nn-course/updates.txt
# lists what was done.
set -eu
umask 077 # other users cannot read files that this user makes
course=$(cd "$(dirname "$0")/.." && pwd)
# The copy must not have the name of the package: Python would import the folder next to a notebook in its place.
if [ ! -e "$HOME/nn-course" ]; then
    new=$(mktemp -d "$HOME/.nn-course-XXXXXX")
    if [ -n "${NNCOURSE_HANDOUT:-}" ]; then
        cp -R "$NNCOURSE_HANDOUT" "$new/nn-course"
    else
        (cd "$course" && .venv/bin/python -m nnclassroom notebooks "$new/nn-course/notebooks") >&2
    fi
    chmod -R u+w "$new/nn-course"
    mv "$new/nn-course" "$HOME/nn-course" # in one step, so that an interruption leaves no half copy
    rmdir "$new"
    # Matplotlib lists the fonts once for each user. That takes seconds, so do it now and not in the first notebook.
    "$course/.venv/bin/python" -c "import matplotlib.font_manager" >/dev/null 2>&1 &
else
    # An older copy, without a manifest, stays as it is. No mistake here may keep the server from starting.
    copy=$HOME/nn-course handout=${NNCOURSE_HANDOUT:-}
    update() {
        said=$(cd "$course" && .venv/bin/python -m nnclassroom "$@" 2>&1) || true
        [ -z "$said" ] || printf '%s\n%s\n\n' "$(date '+%F %T')" "$said" >>"$copy/updates.txt"
    }
    if [ -n "$handout" ] && [ -e "$handout/MANIFEST.json" ] && [ -e "$copy/MANIFEST.json" ]; then
        cmp -s "$handout/MANIFEST.json" "$copy/MANIFEST.json" || update update "$handout" --folder "$copy"
    elif [ -z "$handout" ] && [ -e "$copy/notebooks/MANIFEST.json" ]; then
        update notebooks "$copy/notebooks"
    fi
fi
PATH="$course/.venv/bin:$PATH" # for nncourse and its Python, in terminals too
export PATH
exec "$@"
