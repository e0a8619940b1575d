#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack NAME VERSION AR LIST OUT: makes the archive //:dist (tools/dist.bzl).
#
#   NAME-VERSION/include/NAME/...       headers
#   NAME-VERSION/lib/libNAME.a          one archive with all libraries
#   NAME-VERSION/lib/cmake/NAME/*.cmake
#   NAME-VERSION/lib/pkgconfig/*.pc
#
# Equal files give an archive with equal bytes.
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
          *) echo "pack: $path has no place; write a *.cmake.in or *.pc.in" >&2 && exit 1 ;;
        esac
        # (CMake needs one quoted word for each flag.)
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
