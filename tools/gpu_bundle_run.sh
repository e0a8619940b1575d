#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures this machine's GPU with the programs that gpu_bundle.sh has
# packed beside this file. See usage().
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: run.sh [--leg 1|2|3]... [--only PATTERN]... [--within SECONDS] [--out DIR]
              [--list] [--help]
       run.sh -- COMMAND...

Tests and measures this machine's GPU in three legs, each of which ends within
nine minutes and continues after an item that fails or hangs:

  1  does it work, and how fast is it: attention, kernels, two trainings beside
     the CPU's losses, texts beside the CPU's tokens, every case of the benchmark
  2  is all of it right: CUDA graphs, NCCL's processes, every operator, all
     trainings, CUDA's sanitizer
  3  how fast are others: torch beside each case, tuned products, other numbers
     of ranks, and a profile of the slowest cases

Without --leg, runs all three. Each item is a process of its own with a time
limit of its own, and its row is printed when it ends. After every item,
DIR/legN.tar.gz has all rows (table.txt) and the output of all items so far, also
if the leg is killed. The exit status is 0 if nothing failed. A figure that
misses its goal does not fail. Without a GPU, items are skipped.

  --leg N          runs this leg; repeatable
  --only PATTERN   runs items with matching names, such as 'train*'; repeatable
  --within SECONDS the time limit of a leg (default 540); a program that is
                   running then gets 5 seconds to end
  --out DIR        the folder for the archives (default $OUT, or gpu_logs)
  --list           prints the leg and the name of each item, and stops
  -- COMMAND...    runs only this command, with the bundle's libraries and CUDA's:
                   run.sh -- bin/train --device cuda

CUDA's libraries are taken from Python's packages, as torch takes them, else from
LD_LIBRARY_PATH, $CUDA_HOME/lib64, /usr/local/cuda*/lib64 or the system's folders.
TEXT
}

fail() {
  echo "run.sh: $1" >&2
  exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
legs=() only=() within=540 out=${OUT:-gpu_logs} mode=run command=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --list) mode=list ;;
    --leg | --only | --within | --out)
      (($# > 1)) || fail "$1 needs a value; see --help"
      case $1 in
        --leg) legs+=("$2") ;;
        --only) only+=("$2") ;;
        --within) within=$2 ;;
        --out) out=$2 ;;
      esac
      shift
      ;;
    --)
      shift
      (($#)) || fail "-- needs a command after it"
      command=("$@")
      break
      ;;
    *) fail "there is no flag $1; see --help" ;;
  esac
  shift
done
((${#legs[@]})) || legs=(1 2 3)
for leg in "${legs[@]}"; do
  [[ $leg == [123] ]] || fail "there is no leg $leg; write --leg 1, --leg 2 or --leg 3"
done
[[ $within =~ ^[1-9][0-9]*$ ]] ||
  fail "--within $within is not a number of seconds; write --within 540"

# ---------------------------------------------------------------------------
# Libraries.

callers_path=${LD_LIBRARY_PATH:-}

# Prints folders that may have CUDA's libraries, one on each line. Python's
# packages come first: figures are compared with those of torch, which uses them.
cuda_folders() {
  local python
  for python in python3 python; do
    "$python" - 2>/dev/null <<'PY'
import glob, site, sys
folders = [site.getusersitepackages()] + sys.path
if hasattr(site, "getsitepackages"):  # not in every environment
    folders += site.getsitepackages()
for folder in folders:
    for found in sorted(glob.glob(folder + "/nvidia/*/lib")):
        print(found)
PY
  done
  tr : '\n' <<<"$callers_path"
  printf '%s\n' "${CUDA_HOME:+$CUDA_HOME/lib64}" /usr/local/cuda/lib64 \
    /usr/local/cuda-*/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64
}
folders=$(cuda_folders)

# Prints the first folder of each of CUDA's libraries, separated by colons.
cuda_path() {
  local library folder path=
  while read -r library; do
    while read -r folder; do
      [[ $folder && -e $folder/$library ]] || continue
      [[ :$path: == *:$folder:* ]] || path+=${path:+:}$folder
      break
    done <<<"$folders"
  done <"$here/cuda_libraries"
  echo "$path"
}

# Prints the libraries that are not found, separated by spaces.
missing_libraries() {
  local library folder known
  known=$( (PATH=$PATH:/sbin:/usr/sbin ldconfig -p) 2>/dev/null)
  while read -r library; do
    [[ $known != *"$library "* ]] || continue
    while read -r folder; do
      [[ $folder && -e $folder/$library ]] && continue 2
    done <<<"$folders"
    printf '%s ' "$library"
  done <"$here/cuda_libraries"
}

path=$(cuda_path)
export LD_LIBRARY_PATH=$here/lib${path:+:$path}${callers_path:+:$callers_path}
# Uses this machine's C++ library, as CUDA's libraries do, unless it is too old.
if ! "$here/bin/train" --version >/dev/null 2>&1; then
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$here/lib/fallback
  why=$("$here/bin/train" --version 2>&1) ||
    fail "the bundle's programs do not run here (status $?): ${why:-they print nothing; this CPU may be older than the one that they are built for}"
fi
if ((${#command[@]})); then
  cd "$here" || exit 1
  exec "${command[@]}"
fi

# The reason why nothing can run on a GPU here; empty if it can. Lines of other
# libraries are no reason.
no_gpu=
if [[ $mode == run ]]; then
  probed=$(timeout -k 5 60 "$here/bin/cuda_probe" 0 2>&1)
  no_gpu=$(grep -m 1 '^\[' <<<"$probed")
  grep -q '^[1-9][0-9]* devices$' <<<"$probed" ||
    no_gpu=${no_gpu:-$(tail -n 1 <<<"$probed")}
  missing=$(missing_libraries)
  if [[ $no_gpu && $missing ]]; then
    echo "run.sh: not found: ${missing% }; name their folders in LD_LIBRARY_PATH, or install Python's wheels of them (nvidia-cublas, nvidia-cudnn-cu13, nvidia-nccl-cu13, nvidia-cuda-nvrtc)" >&2
  fi
fi

# ---------------------------------------------------------------------------
# Items. Each is a function that prints its log, sets `figure`, and `goal` if the
# call of item() does not name it, and returns 0 for passed, 77 for skipped, and
# anything else for failed.

names=() results=() seconds=() figures=() goals=()
figure="" goal="" deadline=0 running=()

# begin COMMAND...: runs it until the deadline of the item, in the background. Its
# process is the last of `running`, which a signal to this script ends too.
begin() {
  local left=$((deadline - SECONDS))
  timeout -k 5 $((left > 0 ? left : 1)) "$@" &
  running+=($!)
}
# ended: waits for all that run; the status of the last that failed.
ended() {
  local process status=0 one
  for process in "${running[@]}"; do
    wait "$process"
    one=$?
    ((one == 0)) || status=$one
  done
  running=()
  return "$status"
}
# limited COMMAND...: runs it and waits. Not in the foreground, because bash reacts
# to a signal only when a command there has ended.
limited() {
  begin "$@"
  ended
}

count() { printf '%s\n' "${results[@]}" | grep -c "^$1$"; }

# row NAME RESULT SECONDS FIGURE GOAL
row() { printf '%-36s %-7s %7s  %-64s %s\n' "$@"; }

# Prints the table so far.
table() {
  local i
  cat "$here/built"
  row item result seconds figure goal
  for i in "${!names[@]}"; do
    row "${names[i]}" "${results[i]}" "${seconds[i]}" "${figures[i]}" "${goals[i]}"
  done
  ((${#names[@]} == total)) || echo "$((total - ${#names[@]})) of $total have not run"
  echo "leg $leg: $(count passed) passed, $(count failed) failed, $(count skipped) skipped in $((SECONDS - started)) s"
}

# Makes the archive of the leg so far, which replaces the one before.
archive() {
  table >"$logs/table.txt"
  # A file that would crowd the rest out stays here.
  tar -C "$work" -czf "$out/leg$leg.tar.gz.part" \
    --exclude-from <(cd "$work" && find "leg$leg" -size +8M) "leg$leg" &&
    mv "$out/leg$leg.tar.gz.part" "$out/leg$leg.tar.gz"
}

file_of() { echo "$logs/${1//[^A-Za-z0-9_.-]/_}"; }

# item NAME SECONDS FUNCTION [ARGUMENT...]: runs the function if NAME is selected.
item() {
  local name=$1 given=$2 wanted="" pattern start left status log
  shift 2
  for pattern in "${only[@]}"; do
    # shellcheck disable=SC2053
    [[ $name == $pattern ]] && wanted=1
  done
  [[ $wanted || ${#only[@]} == 0 ]] || return
  case $mode in
    list) echo "$leg $name" && return ;;
    count) total=$((total + 1)) && return ;;
  esac
  log=$(file_of "$name").log
  start=$EPOCHREALTIME figure="" goal=""
  left=$((within - SECONDS + started))
  ((given < left)) || given=$left
  deadline=$((SECONDS + given))
  if [[ $no_gpu && $1 != device && $1 != libraries ]]; then
    status=77 figure="no GPU: $no_gpu"
  elif ((given <= 0)); then
    status=77 figure="no time left of $within s"
  else
    "$@" >"$log" 2>&1
    status=$?
  fi
  names+=("$name")
  seconds+=("$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")")
  case $status in
    0) results+=(passed) ;;
    77) results+=(skipped) ;;
    *)
      results+=(failed)
      ((status == 124 || status == 137)) && figure="ran for over $given s${figure:+: $figure}"
      figure=${figure:-status $status: $(tail -n 1 "$log")}
      ;;
  esac
  figures+=("$figure") goals+=("$goal")
  row "$name" "${results[-1]}" "${seconds[-1]}" "$figure" "$goal"
  archive
}

# If there is a GPU that cannot be used, the item fails rather than being
# skipped.
GPU_FILES=${GPU_FILES:-/dev/nvidia[0-9]*}
device() {
  if command -v nvidia-smi >/dev/null && limited nvidia-smi; then
    figure=${no_gpu:-$(limited nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader | head -n 1)}
    [[ ! $no_gpu ]]
  elif compgen -G "$GPU_FILES" >/dev/null; then
    figure=${no_gpu:-no nvidia-smi}
    [[ ! $no_gpu ]]
  elif [[ $no_gpu ]]; then
    figure="no GPU: $no_gpu"
    return 77
  else
    figure="no nvidia-smi"
  fi
}

# Prints the files of CUDA's libraries that programs get here, and their
# versions.
libraries() {
  mapfile -t wanted <"$here/cuda_libraries"
  echo "built with: $(<"$here/built")"
  limited python3 -c "$versions" "${wanted[@]}" >"$logs/last"
  local status=$?
  cat "$logs/last"
  figure=$(tail -n 1 "$logs/last")
  [[ ! $no_gpu || $status == 0 ]] || status=77
  return "$status"
}
versions=$(cat <<'PY'
import ctypes, sys

def version(name, library):
    n, minor = ctypes.c_int(), ctypes.c_int()
    if "nvrtc" in name:
        library.nvrtcVersion(ctypes.byref(n), ctypes.byref(minor))
        return f"{n.value}.{minor.value}"
    if "nccl" in name:
        library.ncclGetVersion(ctypes.byref(n))
        v = n.value
    else:
        ask = library.cudnnGetVersion if "cudnn" in name else library.cublasLtGetVersion
        ask.restype = ctypes.c_size_t
        v = ask()
    return f"{v // 10000}.{v // 100 % 100}.{v % 100}"

short, missing = [], 0
for name in sys.argv[1:]:
    try:
        text = version(name, ctypes.CDLL(name))
        with open("/proc/self/maps") as maps:
            files = [line.split()[-1] for line in maps if f"/{name}" in line]
        print(name, text, *files[:1])
    except (OSError, AttributeError) as e:
        text, missing = "missing", 1
        print(name, e)
    short.append(f"{name[3:].split('.')[0]} {text}")
print(", ".join(short))
sys.exit(missing)
PY
)

# counted LOG STATUS: the figure of one test program or several.
counted() {
  local passed skipped failed
  number() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests\?[.,].*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }
  local log=$1
  passed=$(number PASSED) skipped=$(number SKIPPED) failed=$(number FAILED)
  if (($2)); then
    figure="$(grep -c '^\[ *OK \]' "$log") cases passed, $failed failed, status $2: $(grep -m 1 'Failure$' "$log")"
    return "$2"
  fi
  figure="$passed cases"
  ((!skipped)) ||
    figure+=", $skipped skipped: $(awk '/: Skipped$/ { getline; print; exit }' "$log")"
  ((passed)) && return
  ((skipped)) && return 77
  return 1
}

# gtest BINARY [FLAG...]: counts the cases that it reports.
gtest() {
  local status
  limited "$@" >"$logs/last" 2>&1
  status=$?
  cat "$logs/last"
  counted "$logs/last" "$status"
}

# test_of NAME [FLAG...]
test_of() { gtest "$here/bin/$1" "${@:2}"; }

# shards N TEST [FLAG...]: N processes at once, each with its part of the cases.
shards() {
  local n=$1 i status
  shift
  for ((i = 0; i < n; i++)); do
    begin env GTEST_TOTAL_SHARDS="$n" GTEST_SHARD_INDEX="$i" \
      "$here/bin/$1" "${@:2}" >"$logs/last.$i" 2>&1
  done
  ended
  status=$?
  cat "$logs"/last.* | tee "$logs/last"
  rm "$logs"/last.*
  counted "$logs/last" "$status"
}

conformance() {
  limited "$here/bin/conformance" "$here/conformance" --device cuda >"$logs/last"
  local status=$?
  cat "$logs/last"
  figure=$(tail -n 1 "$logs/last")
  return "$status"
}

# Saves what a plan of attention or of a product depends on.
properties() {
  limited "$here/bin/gpu_properties" "$logs" >"$logs/last"
  local status=$?
  cat "$logs/last"
  figure=$(tail -n 1 "$logs/last")
  return "$status"
}

# The command of a short training, of $steps or 20 steps.
training=()
train_of() {
  training=("$here/bin/train" --text "$here/text" --steps "${steps:-20}"
    --layers 2 --hidden 48 --heads 6 --seq 32 --sample 0 "$@")
}

# losses MESH DTYPE DEVICE [FLAG...]: trains, and keeps the losses. Without flags,
# ranks share a GPU.
losses() {
  local flags=("${@:4}")
  ((${#flags[@]})) || flags=(--ranks-per-gpu 4)
  if [[ $3 == cuda ]]; then flags=(--device cuda "${flags[@]}"); else flags=(); fi
  train_of --mesh "$1" --dtype "$2" "${flags[@]}" --json "$logs/train.json"
  limited "${training[@]}" && keep_losses "$1" "$2" "$3"
}
# keep_losses MESH DTYPE DEVICE: writes the losses of train.json to a file, one on
# each line.
keep_losses() {
  tr '\n' ' ' <"$logs/train.json" | sed 's/.*"losses": *\[\([^]]*\)\].*/\1/' |
    grep -Eo -- '-?[0-9]+\.[0-9]+(e[-+]?[0-9]+)?' >"$logs/losses_$1_$2_$3.txt"
  rm "$logs/train.json"
}

# train MESH DTYPE TOLERANCE [FLAG...]: trains on the GPU, and compares the
# losses with the CPU's.
train() {
  cpu_losses "$1" "$2" && losses "$1" "$2" cuda "${@:4}" && compare "$1" "$2" "$3"
}
# Once for each mesh and type.
cpu_losses() { [[ -e $logs/losses_$1_$2_cpu.txt ]] || losses "$1" "$2" cpu; }

# compare MESH DTYPE TOLERANCE
compare() {
  echo "the CPU's losses, and the GPU's:"
  paste "$logs/losses_$1_$2_"{cpu,cuda}.txt
  goal="<= $3"
  figure=$(paste "$logs/losses_$1_$2_"{cpu,cuda}.txt | awk -v most="$3" '
    NF != 2 { bad = 1 }
    { d = ($1 > $2 ? $1 - $2 : $2 - $1) / $1
      if (!(d <= most)) bad = 1
      if (d > largest) largest = d }
    END { printf "%d losses, %.1e from the CPU\047s", NR, largest
          exit bad || NR < 20 }')
}

# Two prompts of the letters, as safetensors has them.
prompts() {
  local header='{"input_ids":{"dtype":"I64","shape":[2,4],"data_offsets":[0,64]}}' letter
  # shellcheck disable=SC2059
  printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0"
  printf '%s' "$header"
  for letter in T h e ' ' a n d ' '; do printf '%s\0\0\0\0\0\0\0' "$letter"; done
}

# generate [FLAG...]: continues texts on the GPU, with their keys and values kept,
# and compares the tokens with the CPU's.
generate() {
  local model=$work/model ids=$work/prompts.safetensors on
  if [[ ! -e $ids ]]; then
    train_of --mesh dp=1 --dtype f32 --save "$model"
    limited "${training[@]}" && prompts >"$ids" || return
  fi
  for on in cpu "cuda --ranks-per-gpu 4"; do
    # shellcheck disable=SC2086
    limited "$here/bin/generate" --model "$model" --ids "$ids" \
      --tokens 20 --temperature 0 --ignore-eos "$@" --device $on >"$logs/tokens.${on%% *}" || return
  done
  paste -d '\n' "$logs"/tokens.{cpu,cuda}
  figure="$(wc -l <"$logs/tokens.cpu") texts of 20 tokens, as on the CPU"
  cmp "$logs"/tokens.{cpu,cuda} || { figure="other tokens than the CPU's" && return 1; }
}

# begin_processes N FLAG...: trains by N processes of one rank each, all on one
# GPU. NCCL refuses that of processes of one machine, so each claims to be on
# another. The folder `meet` gets the output and the id of each.
meet=""
begin_processes() {
  local n=$1 i json=(--json "$logs/train.json")
  meet=$(mktemp -d "$logs/processes.XXXXXX")
  train_of --device cuda --rendezvous "$meet/at" --timeout 30 "${@:2}"
  for ((i = 0; i < n; i++)); do
    # The process that a signal has to reach is not that of `timeout`.
    # shellcheck disable=SC2016
    begin env WORLD_SIZE="$n" LOCAL_WORLD_SIZE="$n" RANK="$i" LOCAL_RANK="$i" \
      NCCL_HOSTID="host$i" NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 \
      NCCL_SHM_DISABLE=1 CUDA_VISIBLE_DEVICES="${one_gpu%%,*}" \
      bash -c 'echo $$ >"$0" && exec "$@"' "$meet/process.$i" "${training[@]}" "${json[@]}" \
      >"$meet/rank.$i" 2>&1
    json=()  # the first writes it
  done
}
one_gpu=${CUDA_VISIBLE_DEVICES:-0}

# refused: whether NCCL takes no two ranks on one GPU here.
refused() {
  cat "$meet"/rank.*
  grep -q 'Duplicate GPU' "$meet"/rank.* || return
  figure="NCCL refuses two ranks on one GPU, whatever NCCL_HOSTID is"
}

# processes MESH [FLAG...]: trains by a process for each rank, and compares the
# losses with the CPU's.
processes() {
  local n=1 size status
  for size in ${1//,/ }; do n=$((n * ${size#*=})); done
  cpu_losses "$1" f32 || return
  begin_processes "$n" --mesh "$1" --dtype f32 "${@:2}"
  ended
  status=$?
  ! refused || return 77
  ((status == 0)) || return "$status"
  keep_losses "$1" f32 cuda && compare "$1" f32 1e-4
}

# Kills one of two processes that train: the other has to end, and to say why.
killed_process() {
  local first status start
  steps=1000000 begin_processes 2 --mesh tp=2 --dtype f32
  first=${running[0]}
  until grep -q '^step 1/' "$meet/rank.0" || ! kill -0 "$first"; do sleep 0.2; done
  kill -KILL "$(<"$meet/process.1")"
  start=$EPOCHREALTIME
  wait "$first"
  status=$?
  start=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")
  ended
  ! refused || return 77
  ((status != 124 && status != 137)) || return "$status"
  figure="the other ended $start s later: $(grep -m 1 'rank 1 failed' "$meet/rank.0")"
  grep -q '^step 1/' "$meet/rank.0" || figure="ended before the first step"
  ((status)) && [[ $figure == *"rank 1 failed"* ]]
}

# tool NAME: prints the path of one of CUDA's tools, or why there is none.
tool() {
  PATH=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin$(printf ':%s' /opt/nvidia/nsight-compute/*) \
    command -v "$1" && return
  echo "no $1 in PATH, /usr/local/cuda/bin or /opt/nvidia/nsight-compute"
  return 77
}

# sanitizer TOOL TEST [FLAG...]
sanitizer() {
  local found
  found=$(tool compute-sanitizer) || { figure=$found && return 77; }
  # CUDA calls may return errors that a test expects, such as out of memory.
  gtest "$found" --tool "$1" --error-exitcode 99 --report-api-errors no \
    --target-processes application-only "$here/bin/$2" "${@:3}"
}

# Both print "CASE  FIGURE; goal GOAL".
row_of() {
  figure=$(grep "^$1 " "$logs/last" | tail -n 1)
  goal=${figure##*; goal }
  [[ $goal != "$figure" ]] || goal=
  figure=${figure%; goal *}
  figure=${figure#"$1"}
  figure=${figure#"${figure%%[! ]*}"}
}

# bench CASE [FLAG...]: keeps its result in CASE.json.
bench() {
  limited "$here/bin/gpu_bench" --device cuda --cases "$1" \
    --json "$(file_of "$*").json" "${@:2}" >"$logs/last"
  local status=$?
  cat "$logs/last"
  row_of "$1"
  return "$status"
}

# One process of torch, with the libraries that torch finds, takes its times of
# all cases of a leg: to start and to compile takes longer than to measure. It ends
# with a case that fails or hangs, and the next case starts another.
torch_process="" to_torch="" from_torch="" no_torch=""

# torch_says WORD: prints what the process says until it says WORD.
torch_says() {
  local line part="" status
  while ((SECONDS < deadline)); do
    IFS= read -r -t 1 -u "$from_torch" line
    status=$?
    part+=$line
    if ((status == 0)); then
      [[ $part != "$1" ]] || return 0
      printf '%s\n' "$part"
      part=""
    elif ((status <= 128)); then  # it has ended
      end_torch
      return
    fi
  done
  kill "$torch_process"
  end_torch
  return 124
}
# Waits for the end of the process, if there is one; fails, with its status if
# that is not 0.
end_torch() {
  local status
  [[ $torch_process ]] || return
  exec {to_torch}>&- {from_torch}<&-
  wait "$torch_process"
  status=$?
  torch_process=""
  return $((status ? status : 1))
}
begin_torch() {
  local left=$((within - SECONDS + started)) status
  [[ ! $torch_process ]] || return 0
  if [[ ! $no_torch ]]; then
    coproc TORCH { LD_LIBRARY_PATH=$callers_path exec timeout -k 5 "$left" \
      python3 "$here/gpu_bench.py" --serve 2>&1; }
    torch_process=$TORCH_PID
    # bash would close its own when the process ends, also if unread.
    exec {to_torch}>&"${TORCH[1]}"- {from_torch}<&"${TORCH[0]}"-
    torch_says ready
    status=$?
    ((status)) || return 0
    no_torch="python3 has no torch with CUDA"
    ((status == 77 || status == 127)) || no_torch="torch does not start: status $status"
  fi
  figure=$no_torch
  return 77
}

# torch CASE: ours, and torch's beside it.
torch() {
  local status file
  file=$(file_of "$1")
  begin_torch && bench "$1" || return
  trap '' PIPE
  printf '%s\t%s\t%s\n' "$1" "$file.json" "$file.torch.json" >&"$to_torch"
  trap - PIPE
  torch_says "done" >"$logs/last"
  status=$?
  cat "$logs/last"
  row_of "$1"
  return "$status"
}

# Prints the cases of this leg that reach the least of what is possible.
slowest() {
  grep -Hm 1 '"ratio"' "$logs"/G[13478]_*.json |
    sed 's/.*"ratio": \([0-9.e+-]*\).*/\1 &/' | sort -g | head -n "$1" | tail -n 1 |
    sed 's/^[^ ]* \([^:]*\):.*/\1/'
}

# profile N: of the case that is the Nth slowest.
profile() {
  local found json name
  found=$(tool ncu) || { figure=$found && return 77; }
  json=$(slowest "$1")
  [[ $json ]] || { figure="no case has run in this leg" && return 77; }
  name=$(sed -n 's/.*"case": "\([^"]*\)".*/\1/p' "$json")
  figure=$name
  # The clocks stay as they are: a machine that is lent has to be given back so, and
  # ratios are those of its clocks. The first launches fill the case's tensors.
  limited "$found" --clock-control none --section SpeedOfLight --section LaunchStats --section Occupancy \
    --section MemoryWorkloadAnalysis --section WarpStateStats \
    --launch-count 60 "$here/bin/gpu_bench" --device cuda --cases "$name" --rounds 0
}

# Some kernels of each kind.
sampled='*Gpu_add:*Gpu_matmul:*Gpu_softmax:*Gpu_layer_norm'
sampled+=':*Gpu_sum:*Gpu_cumsum:*Gpu_embedding:*Gpu_cross_entropy:*Gpu_attention'
sampled+=':*Gpu_rotary:*Gpu_cat'

kernel_groups() {
  local test
  for test in "$here"/bin/ops.kernels.*_gpu_test; do
    test=${test##*/ops.kernels.}
    echo "${test%_gpu_test}"
  done
}

# cases PATTERN...: the benchmark's that match, in this order.
cases() {
  local pattern
  for pattern; do grep "^$pattern" <<<"$all_cases"; done
}

leg_1() {
  local name
  item device 30 device
  item libraries 30 libraries
  item attention 60 test_of cuda.attention_gpu_test
  for name in $(kernel_groups); do
    item "kernels $name" 40 test_of "ops.kernels.${name}_gpu_test"
  done
  for name in dp=2 tp=2; do item "train $name f32" 40 train $name f32 1e-4; done
  item "generate" 40 generate
  for name in $(cases G2 G3 G8 G7 G1 G4 G5 G9); do
    item "bench $name" 40 bench "$name"
  done
  for name in $(cases G6); do
    item "bench $name tp=4" 40 bench "$name" --mesh tp=4 --ranks-per-gpu 4
  done
  item properties 60 properties
}

leg_2() {
  local name mesh
  item device 30 device
  item libraries 30 libraries
  # First, things that no stand-in shows.
  for mesh in tp=2 dp=2,tp=2 dp=2 tp=3; do
    item "train $mesh f32 in a graph" 25 train "$mesh" f32 1e-4 --ranks-per-gpu 4 --cuda-graph
  done
  for mesh in tp=2 dp=2,tp=2; do
    item "train $mesh f32, processes" 40 processes "$mesh"
    item "train $mesh f32, processes in graphs" 40 processes "$mesh" --cuda-graph
  done
  item "a killed process" 40 killed_process
  # Only the half of each test that uses the GPU.
  item proof 180 shards 4 ops.proof_device_test --gtest_filter='*Gpu*'
  # Without what needs an mpirun that fits the bundle's libraries.
  item "NCCL" 60 test_of dtensor.comm.nccl_gpu_test --gtest_filter='-*AsDoProcesses*'
  item pairs 60 shards 4 dtensor.redistribute_pairs_test --gtest_filter='Gpu/*'
  item "device's memory and streams" 60 test_of ops.cuda_plugin.cuda_device_test
  item boxes 60 test_of ops.cuda_plugin.boxes_test
  item "choice of devices" 30 test_of program.device_choice_test --gtest_filter='*MoreThanThereAre'
  item training 60 test_of nn.recording_device_test --gtest_filter='*Gpu*'
  item conformance 90 conformance
  item "generate tp=2" 25 generate --mesh tp=2
  item "generate int8" 25 generate --weights int8
  for mesh in dp=2 tp=2 tp=3 dp=2,tp=2; do
    item "train $mesh f64" 25 train "$mesh" f64 1e-9
    item "train $mesh f32" 25 train "$mesh" f32 1e-4
  done
  item "train dp=1 f32 with NCCL" 40 train dp=1 f32 1e-4 --backend nccl
  # Streams run at once only on a GPU, so that races come first.
  for name in racecheck memcheck; do
    # Kernels that use shared memory.
    for mesh in reduce rows select training; do
      item "$name $mesh" 60 sanitizer $name ops.kernels.${mesh}_gpu_test
    done
    item "$name boxes" 60 sanitizer $name ops.cuda_plugin.boxes_test
    item "$name operators" 60 sanitizer $name ops.proof_device_test --gtest_filter="$sampled"
    # Without tests that fill the GPU or kill the program.
    item "$name device" 60 sanitizer $name ops.cuda_plugin.cuda_device_test \
      --gtest_filter='-*NoMore*:*OtherStreamsFreed:*Later*'
  done
}

leg_3() {
  local name n
  item device 30 device
  item libraries 30 libraries
  for name in $(cases G4 G3 G8 G7 G5 G1 G2); do
    item "torch $name" 60 torch "$name"
  done
  end_torch
  for n in 1 2 3 4; do item "profile of the slowest, $n" 40 profile "$n"; done
  for name in $(cases G1); do
    item "bench $name tuned" 30 bench "$name" --tune-gemm
  done
  for name in $(cases G4); do
    item "bench $name deterministic" 30 bench "$name" --deterministic
  done
  for n in 2 8; do
    for name in $(cases G6); do
      item "bench $name tp=$n" 30 bench "$name" --mesh tp=$n --ranks-per-gpu $n
    done
  done
}

all_cases=$("$here/bin/gpu_bench" --list) || fail "gpu_bench --list does not run: $all_cases"
if [[ $mode == list ]]; then
  for leg in "${legs[@]}"; do "leg_$leg"; done
  exit
fi
mkdir -p "$out" || fail "cannot make the folder $out; name another with --out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
any="" failed="" logs=""
# A leg that is ended also has the output of the item that was running.
trap 'kill "${running[@]}" $torch_process 2>/dev/null; [[ ! $logs ]] || archive; rm -rf "$work"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
for leg in "${legs[@]}"; do
  names=() results=() seconds=() figures=() goals=() total=0
  mode=count
  "leg_$leg"
  mode=run
  ((total)) || continue
  any=1 started=$SECONDS logs=$work/leg$leg
  mkdir "$logs"
  echo "leg $leg: $total items within $within s; $out/leg$leg.tar.gz has what is known so far"
  row item result seconds figure goal
  "leg_$leg"
  echo
  cat "$logs/table.txt"
  ((!$(count failed))) || failed=1
done
[[ $any ]] || fail "no item is named ${only[*]}; --list prints the names"
[[ ! $failed ]]
