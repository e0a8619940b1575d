#!/bin/bash
# pack NAME VERSION AR LIST OUT: what //:dist is made of (tools/dist.bzl).
#
#   NAME-VERSION/include/NAME/...       headers
#   NAME-VERSION/lib/libNAME.a          one archive of all
#   NAME-VERSION/lib/cmake/NAME/*.cmake
#   NAME-VERSION/lib/pkgconfig/*.pc
#
# The same files give the same bytes.
set -euo pipefail
name=$1 version=$2 ar=$3 list=$4 out=$PWD/$5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/$name-$version
mkdir -p "$top"/lib/{cmake/"$name",pkgconfig}

mpi=()
{
  echo "create $top/lib/lib$name.a"
  while read -r what path place; do
    case $what in
      header) install -D -m 644 "$path" "$top/include/$place" ;;
      archive) echo "addlib $path" ;;
      flag) mpi+=("$path") ;;
      template)
        file=$(basename "$path" .in)
        case $file in
          *.cmake) place=lib/cmake/$name/$file ;;
          *.pc) place=lib/pkgconfig/$file ;;
          *) echo "pack: nobody knows where $path goes" >&2 && exit 1 ;;
        esac
        # (For CMake one word each.)
        [[ $file == *.cmake ]] && flags=$(printf ' "%s"' "${mpi[@]}") || flags=" ${mpi[*]}"
        ((${#mpi[@]})) || flags=
        sed "s/@VERSION@/$version/g; s|@MPI@|$flags|g" "$path" >"$top/$place"
        ;;
    esac
  done <"$list"
  echo save
  echo end
} >"$work/script"
"$ar" -M <"$work/script"

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
  -C "$work" -c "$name-$version" | gzip -n9 >"$out"
