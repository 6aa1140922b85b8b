#!/bin/sh
# Starts a user's server for JupyterHub, as that user: singleuser.sh SERVER OPTION...
#
# NNCOURSE_HANDOUT  the folder that is copied to ~/nn-course if that is not there: a hand-out, unpacked (default: the
#                   course's own notebooks, without outputs)
# NNCOURSE_LANG     the language of the course, such as es (default: en)
#
# At each later start what the course has changed is brought into the copy; what the user typed stays. What was done
# stands in ~/nn-course/updates.txt.
set -eu
umask 077 # what the user makes, other users cannot read
course=$(cd "$(dirname "$0")/.." && pwd)
# No folder is named as the package: beside a notebook Python would take it for that.
if [ ! -e "$HOME/nn-course" ]; then
    new=$(mktemp -d "$HOME/.nn-course-XXXXXX")
    if [ -n "${NNCOURSE_HANDOUT:-}" ]; then
        cp -R "$NNCOURSE_HANDOUT" "$new/nn-course"
    else
        (cd "$course" && .venv/bin/python -m nnclassroom notebooks "$new/nn-course/notebooks") >&2
    fi
    chmod -R u+w "$new/nn-course"
    mv "$new/nn-course" "$HOME/nn-course" # at once: an interrupted copy is no course
    rmdir "$new"
    # matplotlib lists the fonts once for each user, which takes seconds: now, and not in the first notebook.
    "$course/.venv/bin/python" -c "import matplotlib.font_manager" >/dev/null 2>&1 &
else
    # A copy without a manifest is of before, and stays as it is. No mistake here may keep the server from starting.
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
PATH="$course/.venv/bin:$PATH" # nncourse and its python, in terminals too
export PATH
exec "$@"
