#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: docs.sh [--serve] [FOLDER]
#
# Builds docs/ and the README as a site in FOLDER (default: site), with an API
# reference that Doxygen makes from the headers that dtensor.h reaches in
# FOLDER/api. --serve shows the site on http://127.0.0.1:8000 and builds it again
# when it has changed; there is no API reference then.
#
# Takes Doxygen from Debian and mkdocs-material from PyPI, into a virtual
# environment in the user's cache. A warning is an error.
set -euo pipefail

serve=
site=
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    --serve) serve=1 ;;
    -*) echo "docs.sh: there is no $argument; see --help" >&2 && exit 2 ;;
    *)
      [[ ! $site ]] || { echo "docs.sh: $argument is one folder too many" >&2; exit 2; }
      site=$argument
      ;;
  esac
done
site=$(realpath -m "${site:-site}")
root=$(realpath "$(dirname "$0")/..")

environment=${XDG_CACHE_HOME:-$HOME/.cache}/dtensor/mkdocs
if [[ ! -x $environment/bin/mkdocs ]]; then
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet 'mkdocs-material>=9.5,<10'
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/docs"
cp -r "$root"/docs/*.md "$root/docs/img" "$work/docs/"
# The README is the site's first page; files of the tree are on no page.
sed -E 's#\]\(docs/#](#g' "$root/README.md" >"$work/docs/index.md"
sed -i -E -e 's#\]\(\.\./README\.md#](index.md#g' \
  -e 's#\[([^]]*)\]\((\.\./)?(LICENSE|(dtensor|placement|ops|nn|programs?|examples|tests|tools)/[^)]*)\)#\1#g' \
  "$work"/docs/*.md
{
  cat "$root/tools/mkdocs.yml"
  printf 'docs_dir: %s\nsite_dir: %s\n' "$work/docs" "$site"
} >"$work/mkdocs.yml"

if [[ $serve ]]; then
  "$environment/bin/mkdocs" serve --strict -f "$work/mkdocs.yml" -a 127.0.0.1:8000
  exit
fi
# (It advertises a successor otherwise.)
export NO_MKDOCS_2_WARNING=1
"$environment/bin/mkdocs" build --strict --quiet -f "$work/mkdocs.yml"

type doxygen >/dev/null || {
  echo "docs.sh: Doxygen is missing; sudo apt-get install doxygen" >&2
  exit 1
}
cd "$root"
# Doxygen reads ///, not //, and takes < for HTML.
python3 tools/headers_reached.py | sed '$d' | while read -r header; do
  install -D -m 644 "$header" "$work/api/$header"
  sed -i -E -e '/^ *\/\//s#<#\\<#g' -e 's#^( *)//($| )#\1///\2#' "$work/api/$header"
done
(
  cd "$work/api"
  { cat "$root/tools/Doxyfile"; printf 'INPUT = .\nOUTPUT_DIRECTORY = %s\nHTML_OUTPUT = api\n' "$site"; } |
    doxygen - 2>"$work/warnings"
)
if [[ -s $work/warnings ]]; then
  cat "$work/warnings" >&2
  exit 1
fi
echo "$(find "$site" -name '*.html' ! -path '*/api/*' | wc -l) pages and $(find "$site/api" -name '*.html' | wc -l) of the API reference in $site"
