#!/bin/bash
# Tests and measures this machine's GPU with the programs that gpu_bundle.sh has
# packed beside this file. See usage().
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: run.sh [--only PATTERN]... [--limit SECONDS] [--within SECONDS] [--logs DIR]
              [--list] [--help]
       run.sh -- COMMAND...

Runs everything in the bundle, one item after the other: tests, training on
several meshes (comparing the losses on the CPU and on a GPU), the benchmark, and
CUDA's sanitizer on some of the tests. Ends with a table and "N passed, N failed,
N skipped". The exit status is 0 if nothing failed. Without a GPU, items that
need one are skipped. table.txt always has the table so far, also of a run that
was stopped.

  --only PATTERN   runs items with matching names, such as 'train*'; repeatable
  --limit SECONDS  the time limit of each program (default 900)
  --within SECONDS the time limit of the run; items beyond it are skipped
  --logs DIR       gets the output of each item in a file (default gpu_logs)
  --list           prints the names of the items and stops
  -- COMMAND...    runs only this command, with the bundle's libraries and CUDA's:
                   run.sh -- bin/train --device cuda

CUDA's libraries are searched in LD_LIBRARY_PATH, $CUDA_HOME/lib64,
/usr/local/cuda*/lib64, the system's folders, and Python's packages.
TEXT
}

fail() {
  echo "run.sh: $1" >&2
  exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
only=() limit=900 within="" logs=gpu_logs mode=run command=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --list) mode=list ;;
    --only | --limit | --within | --logs)
      (($# > 1)) || fail "$1 needs a value; see --help"
      case $1 in
        --only) only+=("$2") ;;
        --limit) limit=$2 ;;
        --within) within=$2 ;;
        --logs) logs=$2 ;;
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
[[ $limit =~ ^[1-9][0-9]*$ ]] ||
  fail "--limit $limit is not a number of seconds; write --limit 900"
[[ ! $within || $within =~ ^[1-9][0-9]*$ ]] ||
  fail "--within $within is not a number of seconds; write --within 1700"

# ---------------------------------------------------------------------------
# Libraries.

# Prints folders that may have CUDA's libraries, one on each line.
cuda_folders() {
  local python
  tr : '\n' <<<"${LD_LIBRARY_PATH:-}"
  printf '%s\n' "${CUDA_HOME:+$CUDA_HOME/lib64}" /usr/local/cuda/lib64 \
    /usr/local/cuda-*/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64
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
}

# Prints the first folder of each of CUDA's libraries, separated by colons.
cuda_path() {
  local library folder path=
  while read -r library; do
    while read -r folder; do
      [[ $folder && -e $folder/$library ]] || continue
      [[ :$path: == *:$folder:* ]] || path+=${path:+:}$folder
      break
    done < <(cuda_folders)
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
    done < <(cuda_folders)
    printf '%s ' "$library"
  done <"$here/cuda_libraries"
}

path=$(cuda_path)
export LD_LIBRARY_PATH=$here/lib${path:+:$path}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
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

# The reason why nothing can run on a GPU here; empty if it can.
no_gpu=
if [[ $mode == run ]]; then
  no_gpu=$("$here/bin/cuda_probe" 0 2>&1 | grep -v '^[0-9]* devices$')
  missing=$(missing_libraries)
  if [[ $no_gpu && $missing ]]; then
    echo "run.sh: not found: ${missing% }; name their folders in LD_LIBRARY_PATH, or install Python's wheels of them (nvidia-cublas, nvidia-cudnn-cu13, nvidia-nccl-cu13, nvidia-cuda-nvrtc)" >&2
  fi
fi

# ---------------------------------------------------------------------------
# Items. Each is a function that prints its log, sets `note` (a few words), and
# returns 0 for passed, 77 for skipped, and anything else for failed.

names=() results=() seconds=() notes=()
note=

# Prints the seconds that a program may take: --limit, or the time that is left.
seconds_left() {
  local left=$limit
  [[ ! $within ]] || ((within - SECONDS >= left)) || left=$((within - SECONDS))
  echo "$left"
}
limited() {
  local left
  left=$(seconds_left)
  ((left > 0)) || return 124
  timeout -k 10 "$left" "$@"
}

count() { printf '%s\n' "${results[@]}" | grep -c "^$1$"; }

# Prints the table so far.
table() {
  local i
  printf '%-30s %-8s %8s  %s\n' name result seconds note
  for i in "${!names[@]}"; do
    printf '%-30s %-8s %8s  %s\n' "${names[i]}" "${results[i]}" "${seconds[i]}" "${notes[i]}"
  done
  ((${#names[@]} == total)) || echo "$((total - ${#names[@]})) of $total have not run"
  echo "$(count passed) passed, $(count failed) failed, $(count skipped) skipped; logs in $logs"
}

# item NAME FUNCTION [ARGUMENT...]: runs the function if NAME is selected.
item() {
  local name=$1 wanted="" pattern start given status log
  shift
  for pattern in "${only[@]}"; do
    # shellcheck disable=SC2053
    [[ $name == $pattern ]] && wanted=1
  done
  [[ $wanted || ${#only[@]} == 0 ]] || return
  case $mode in
    list) echo "$name" && return ;;
    count) total=$((total + 1)) && return ;;
  esac
  log=$logs/${name//[^A-Za-z0-9_.=-]/_}.log
  printf '[%*d/%d] %s ... ' ${#total} $((${#names[@]} + 1)) "$total" "$name"
  start=$EPOCHREALTIME note=
  given=$(seconds_left)
  if ((given > 0)); then
    "$@" >"$log" 2>&1
    status=$?
  else
    status=77 note="no time left of $within s"
  fi
  names+=("$name")
  seconds+=("$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")")
  case $status in
    0) results+=(passed) ;;
    77) results+=(skipped) ;;
    *)
      results+=(failed)
      ((status == 124 || status == 137)) && note="ran for over $given s"
      note=${note:-status $status: $(tail -n 1 "$log")}
      ;;
  esac
  notes+=("$note")
  echo "${results[-1]}, ${seconds[-1]} s"
  table >"$logs/table.part" && mv "$logs/table.part" "$logs/table.txt"
}

needs_gpu() {
  [[ $no_gpu ]] || return 0
  note="no GPU: $no_gpu"
  return 77
}

# If there is a GPU that cannot be used, the item fails rather than being
# skipped.
GPU_FILES=${GPU_FILES:-/dev/nvidia[0-9]*}
device() {
  if command -v nvidia-smi >/dev/null && nvidia-smi; then
    note=${no_gpu:-$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)}
    [[ ! $no_gpu ]]
  elif compgen -G "$GPU_FILES" >/dev/null; then
    note=${no_gpu:-no nvidia-smi}
    [[ ! $no_gpu ]]
  else
    needs_gpu
  fi
}

# gtest BINARY [FLAG...]: counts the cases that it reports.
gtest() {
  local out status passed skipped reason
  out=$(mktemp)
  limited "$@" 2>&1 | tee "$out"
  status=${PIPESTATUS[0]}
  number() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests\?[.,].*/\1/p" "$out" | tail -n 1; }
  passed=$(number PASSED) skipped=$(number SKIPPED)
  reason=$(awk '/: Skipped$/ { getline; print; exit }' "$out")
  [[ $status != 0 ]] && note="$(number FAILED) cases failed, status $status: $(grep -m 1 'Failure$' "$out")"
  rm "$out"
  ((status)) && return "$status"
  note="${passed:-0} cases${skipped:+, $skipped skipped: $reason}"
  ((${passed:-0})) && return
  [[ $skipped ]] && return 77
  return 1
}

# conformance DEVICE
conformance() {
  [[ $1 != cuda ]] || needs_gpu || return
  limited "$here/bin/conformance" "$here/conformance" --device "$1" | tee >(cat >&2) |
    tail -n 1 >"$logs/last"
  local status=${PIPESTATUS[0]}
  note=$(<"$logs/last")
  rm "$logs/last"
  return "$status"
}

explain() {
  limited "$here/bin/explain" --model llama --mesh dp=4,tp=8 --cost h100 &&
    limited "$here/bin/train" --dry-run --device cuda --mesh dp=4,tp=8 --cost h100
}

# trained ENVIRONMENT... -- FLAG...: runs a short training.
trained() {
  local environment=()
  while [[ $1 != -- ]]; do environment+=("$1") && shift; done
  shift
  limited env "${environment[@]}" "$here/bin/train" --text "$here/text" --steps 20 \
    --layers 2 --hidden 48 --heads 6 --seq 32 --sample 0 "$@"
}

# losses MESH DTYPE DEVICE [FLAG...]: trains, and writes the losses to a file,
# one on each line. Without flags, ranks share a GPU. Uses the variables in
# `environment`, if it is set.
losses() {
  local json=$logs/train.json file=$logs/losses_$1_$2_$3.txt
  local flags=("${@:4}")
  ((${#flags[@]})) || flags=(--ranks-per-gpu 4)
  if [[ $3 == cuda ]]; then flags=(--device cuda "${flags[@]}"); else flags=(); fi
  trained "${environment[@]}" -- --mesh "$1" --dtype "$2" "${flags[@]}" \
    --json "$json" || return
  sed -n '/"losses"/,/\]/p' "$json" |
    grep -Eo -- '-?[0-9]+\.[0-9]+(e[-+]?[0-9]+)?' >"$file"
  rm "$json"
  note="$(wc -l <"$file") losses, from $(head -n 1 "$file") to $(tail -n 1 "$file")"
}

# train MESH DTYPE TOLERANCE [FLAG...]: trains on the GPU, and compares the
# losses with the CPU's.
train() {
  needs_gpu || return
  [[ -e $logs/losses_$1_$2_cpu.txt ]] || losses "$1" "$2" cpu || return
  losses "$1" "$2" cuda "${@:4}" || return
  compare "$1" "$2" "$3"
}

# compare MESH DTYPE TOLERANCE
compare() {
  echo "the CPU's losses, and the GPU's:"
  paste "$logs/losses_$1_$2_"{cpu,cuda}.txt
  note=$(paste "$logs/losses_$1_$2_"{cpu,cuda}.txt | awk -v most="$3" '
    NF != 2 { bad = 1 }
    { d = ($1 > $2 ? $1 - $2 : $2 - $1) / $1
      if (!(d <= most)) bad = 1
      if (d > largest) largest = d }
    END { printf "%d losses, %.1e from the CPU\047s (at most %g)", NR, largest, most
          exit bad || NR < 20 }')
}

# Two processes on one GPU. Each claims to be on another machine, which NCCL may
# refuse, or hang on.
nccl_processes() {
  needs_gpu || return
  [[ -e $logs/losses_dp=2_f32_cpu.txt ]] || losses dp=2 f32 cpu || return
  local meet refused status environment flags
  meet=$(mktemp -d)
  environment=(WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 NCCL_SOCKET_IFNAME=lo
    NCCL_P2P_DISABLE=1
    NCCL_SHM_DISABLE=1 "CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}")
  flags=(--rendezvous "$meet/at" --timeout 60)
  trained "${environment[@]}" RANK=1 LOCAL_RANK=1 NCCL_HOSTID=b -- \
    --mesh dp=2 --dtype f32 \
    --device cuda "${flags[@]}" >"$meet/second" 2>&1 &
  environment+=(RANK=0 LOCAL_RANK=0 NCCL_HOSTID=a)
  losses dp=2 f32 cuda "${flags[@]}" >"$meet/first" 2>&1
  status=$?
  wait $!
  cat "$meet/first" "$meet/second"
  refused=$(grep -h -m 1 'Duplicate GPU' "$meet/first" "$meet/second")
  rm -r "$meet"
  if [[ $refused ]]; then
    note="NCCL refuses two ranks on one GPU, whatever NCCL_HOSTID is"
    return 77
  fi
  ((status == 0)) || return "$status"
  compare dp=2 f32 1e-4
}

# sanitizer TOOL TEST [FLAG...]
sanitizer() {
  local tool=$1 test=$2 found
  shift 2
  needs_gpu || return
  found=$(PATH=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin command -v compute-sanitizer)
  if [[ ! $found ]]; then
    note="no compute-sanitizer in PATH or /usr/local/cuda/bin"
    return 77
  fi
  # CUDA calls may return errors that a test expects, such as out of memory.
  gtest "$found" --tool "$tool" --error-exitcode 99 --report-api-errors no \
    --target-processes application-only "$here/bin/$test" "$@"
}

bench() {
  needs_gpu || return
  limited "$here/bin/gpu_bench" --device cuda "$@"
}

torch_bench() {
  needs_gpu || return
  if ! python3 -c 'import torch; assert torch.cuda.is_available()'; then
    note="python3 has no torch with CUDA"
    return 77
  fi
  limited python3 "$here/gpu_bench.py" --against "$logs/gpu_bench.json"
}

# Some kernels of each kind.
sampled='*Gpu_add:*Gpu_matmul:*Gpu_softmax:*Gpu_layer_norm'
sampled+=':*Gpu_sum:*Gpu_cumsum:*Gpu_embedding:*Gpu_cross_entropy:*Gpu_attention'
sampled+=':*Gpu_rotary:*Gpu_cat'

items() {
  local test group mesh n
  item device device
  item "conformance on the CPU" conformance cpu
  item conformance conformance cuda
  item explain explain
  # All pairs of layouts on the host's ranks take minutes.
  for test in "$here"/bin/*_test; do
    item "${test##*/}" gtest "$test" --gtest_filter='-Meshes/RedistributePairs*'
  done
  for mesh in dp=2 tp=2 tp=3 dp=2,tp=2; do
    item "train $mesh f64 on the CPU" losses "$mesh" f64 cpu
    item "train $mesh f64" train "$mesh" f64 1e-9
    item "train $mesh f32 on the CPU" losses "$mesh" f32 cpu
    item "train $mesh f32" train "$mesh" f32 1e-4
    item "train $mesh f32 in a graph" train "$mesh" f32 1e-4 --ranks-per-gpu 4 --cuda-graph
  done
  item "train dp=1 f32 with NCCL" train dp=1 f32 1e-4 --backend nccl
  item "train dp=2 f32, 2 processes" nccl_processes
  item bench bench --json "$logs/gpu_bench.json"
  item "bench G1 tuned" bench --cases G1 --tune-gemm
  for n in 2 4 8; do
    item "bench tp=$n" bench --mesh tp=$n --ranks-per-gpu $n --cases G6
  done
  item "bench of torch" torch_bench
  # The slowest come last, since there may be no time for them.
  for test in memcheck racecheck; do
    # Without tests that fill the GPU or kill the program.
    item "$test device" sanitizer $test dtensor.device.cuda.cuda_device_test \
      --gtest_filter='-*NoMore*:*OtherStreamsFreed:*Later*'
    item "$test boxes" sanitizer $test dtensor.device.portable.boxes_test --gtest_filter='*/gpu'
    item "$test operators" sanitizer $test ops.proof_device_test --gtest_filter="$sampled"
    # Kernels that use shared memory.
    for group in reduce rows select; do
      item "$test $group" sanitizer $test ops.kernels.${group}_gpu_test
    done
  done
}

total=0
if [[ $mode == list ]]; then
  items
  exit
fi
mode=count
items
((total)) || fail "no item is named ${only[*]}; --list prints the names"
mode=run
mkdir -p "$logs" || fail "cannot make the folder $logs; name another with --logs"
logs=$(cd "$logs" && pwd)
cat "$here/built"
items

echo
cat "$logs/table.txt"
! printf '%s\n' "${results[@]}" | grep -q '^failed$'
