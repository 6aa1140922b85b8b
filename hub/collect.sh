#!/bin/sh
# Collects users' kernels. Run it as root: collect.sh FOLDER USER... writes FOLDER/USER.zip, for nncourse grade FOLDER.
#
# Homes and kernels are closed to other users (umask 077). A process of each user packs that user's kernels and hands
# them over through a pipe, so root opens no file of a user, and follows no link.
set -eu
umask 077
if [ $# -lt 2 ]; then
    echo "collect.sh: expected a folder and the names of users" >&2
    exit 2
fi
course=$(cd "$(dirname "$0")/.." && pwd)
out=$1
shift
mkdir -p "$out"
none=0
for user in "$@"; do
    home=$(getent passwd "$user" | cut -d: -f6) || home=
    if [ -n "$home" ] && runuser -u "$user" -- env HOME="$home" NNCOURSE_MY_KERNELS="$home/my_kernels" sh -c '
        umask 077
        made=$(mktemp -d) && trap "rm -r \"$made\"" EXIT
        cd "$0" && .venv/bin/python -m nnclassroom submit --name "$1" --out "$made/kernels.zip" >&2 && cat "$made/kernels.zip"
    ' "$course" "$user" >"$out/.part"; then
        mv "$out/.part" "$out/$user.zip"
    else
        echo "$user: nothing collected" >&2
        none=$((none + 1))
    fi
done
rm -f "$out/.part"
echo "$(($# - none)) of $# users collected in $out"
