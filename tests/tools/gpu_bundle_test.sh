#!/bin/bash
# Tests tools/gpu_bundle.sh, as far as no nvcc is needed, and what it packs as
# run.sh, on a bundle of stand-ins.
set -u

tools=$PWD/tools
. tests/want.sh

bundle() { CUDA_HOME=$PWD/none "$tools/gpu_bundle.sh" "$@"; }
mkdir there
want help 0 '^usage: ' bundle --help
want unknown-flag 2 '^gpu_bundle.sh: there is no flag --frob; see --help$' bundle --frob x
want nowhere 2 '^gpu_bundle.sh: OUT is missing; ' bundle
want no-cpu 2 '^gpu_bundle.sh: --march needs a CPU' bundle --march
want two 2 'b is one file too many' bundle a b
want exists 2 'there exists already' bundle there
want no-folder 2 'none/x.tar.gz cannot be made, because none is not a folder' bundle none/x.tar.gz
want no-nvcc 2 '^gpu_bundle.sh: a bundle needs nvcc: no nvcc in CUDA_HOME=' \
  bundle x.tar.gz
[[ ! -e x.tar.gz ]] || { echo "left x.tar.gz"; failures=$((failures + 1)); }

# ---------------------------------------------------------------------------
mkdir -p b/bin b/lib/fallback
cp "$tools/gpu_bundle_run.sh" b/run.sh
touch b/cuda_libraries
echo 'commit 1' >b/built

# program NAME: one that does what stdin says.
program() { { echo '#!/bin/bash' && cat; } >"b/bin/$1" && chmod +x "b/bin/$1"; }
program cuda_probe <<'SH'
[[ ${FAKE_GPU:-} ]] && echo '1 devices' || echo '[cuda] none here'
SH
program conformance <<<'echo "12 passed, 0 failed, 0 skipped"'
program explain <<<'exit 0'
program gpu_bench <<<'exit 0'
program train <<'SH'
end=2.5 device=cpu
while (($#)); do
  [[ $1 == --device ]] && device=$2
  [[ $1 == --ranks-per-gpu ]] && sharing=1
  [[ $1 == nccl ]] && nccl=1
  [[ $1 == --json ]] && json=$2
  shift
done
[[ $device == cuda || ! ${sharing:-} ]] || exit 2
[[ $device == cuda && ${FAKE_GPU:-} == wrong ]] && end=2.50004
[[ ! ${json:-} ]] ||
  { echo '{"losses": ['; for i in {1..19}; do echo "5.$i,"; done; echo "$end"; echo ']}'; } >"$json"
[[ ! ${sharing:-} || ! ${nccl:-} ]] || exit 2
[[ ! ${NCCL_HOSTID:-} ]] || echo "$RANK of $WORLD_SIZE, $NCCL_HOSTID" >>processes
[[ ! ${NCCL_HOSTID:-} || $FAKE_GPU != one ]] || { echo 'Duplicate GPU detected'; exit 1; }
SH
program good_test <<'SH'
echo '[  PASSED  ] 3 tests.'
SH
program mixed_test <<'SH'
printf 'x.cc:1: Skipped\nno GPU: none here\n'
printf '[  PASSED  ] 3 tests.\n[  SKIPPED ] 2 tests, listed below:\n'
SH
program skips_test <<'SH'
printf 'x.cc:1: Skipped\nno GPU: none here\n'
printf '[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n'
SH

run() { b/run.sh "$@"; }
want run-help 0 '^usage: ' run --help
want run-unknown-flag 2 '^run.sh: there is no flag --frob; see --help$' run --frob
want run-no-value 2 '^run.sh: --only needs a value' run --only
want run-within 2 '^run.sh: --within 0 is not a number of seconds' run --within 0
want run-limit 2 '^run.sh: --limit x is not a number of seconds' run --limit x
want run-no-item 2 '^run.sh: no item is named frob; --list prints the names$' run --only frob
want run-list 0 '^train tp=3 f32$' run --list
want run-command 3 '^hello$' run -- bash -c 'echo hello; exit 3'

# Without a GPU: what needs none has passed, the rest is skipped.
want no-gpu 0 '^12 passed, 0 failed, 35 skipped; logs in ' run
for line in 'device +skipped .*  no GPU: \[cuda\] none here$' \
  'conformance on the CPU +passed .*  12 passed, 0 failed, 0 skipped$' \
  'good_test +passed .*  3 cases$' \
  'mixed_test +passed .*  3 cases, 2 skipped: no GPU: none here$' \
  'skips_test +skipped .*  0 cases, 1 skipped: no GPU: none here$' \
  'train tp=3 f64 on the CPU +passed .*  20 losses, from 5.1 to 2.5$' \
  'train tp=3 f64 +skipped .*  no GPU: \[cuda\] none here$' \
  'memcheck device +skipped' 'bench +skipped'; do
  want "no-gpu's $line" 0 "^$line" cat gpu_logs/table.txt
done

# Where there is one, or what it needs, and it cannot be used, that is no reason
# to skip.
touch gpu0
echo libnowhere.so.1 >b/cuda_libraries
GPU_FILES="$PWD/gpu*" want unusable 1 '^device +failed .*  \[cuda\] none here$' \
  run --only device
GPU_FILES="$PWD/gpu*" want not-found 1 '^run.sh: not found: libnowhere.so.1; ' \
  run --only device
: >b/cuda_libraries

# With one: losses are compared.
export FAKE_GPU=right
GPU_FILES="$PWD/gpu*" want no-tool 0 '^device +passed .*  no nvidia-smi$' run --only device
want graph 0 '^train tp=3 f32 in a graph +passed .*  20 losses' run --only '*graph'
want nccl 0 '^train dp=1 f32 with NCCL +passed .*  20 losses' run --only '*NCCL'
want processes 0 '^train dp=2 f32, 2 processes +passed .*  20 losses' run --only '*processes'
want other-hosts 0 '^0a1b$' \
  bash -c "sort processes | sed 's/ of 2, //' | tr -d '\n' && echo"
export FAKE_GPU=one
want refused 0 '^train dp=2 f32, 2 processes +skipped .*  NCCL refuses two ranks' \
  run --only '*processes'
want losses 0 '^train dp=2 f32 +passed .*  20 losses, 0.0e\+00 from the CPU' \
  run --only 'train dp=2 f*'
export FAKE_GPU=wrong
want wrong-losses 1 '^train dp=2 f64 +failed .*  20 losses, 1.6e-05 from the CPU' \
  run --only 'train dp=2 f64'
want near-losses 0 '^train dp=2 f32 +passed .*  20 losses, 1.6e-05 from the CPU' \
  run --only 'train dp=2 f32'

# What fails is told, and the rest runs.
program bad_test <<'SH'
printf 'a.cc:7: Failure\n[  PASSED  ] 3 tests.\n[  FAILED  ] 1 test, listed below:\n'
exit 1
SH
program empty_test <<<'echo "[  PASSED  ] 0 tests."'
program late_test <<<'sleep 20'
want failures 1 '^1 passed, 3 failed, 1 skipped; ' run --limit 1 --only '[bels]*_test' \
  --only good_test
for line in 'bad_test +failed .*  1 cases failed, status 1: a.cc:7: Failure$' \
  'empty_test +failed' 'late_test +failed +1.*  ran for over 1 s$'; do
  want "failures' $line" 0 "^$line" cat gpu_logs/table.txt
done

# The tools of CUDA run what they are to run, where there are some.
mkdir -p tools/bin
cat >tools/bin/compute-sanitizer <<'SH'
#!/bin/bash
echo "$@" >>sanitized
echo '[  PASSED  ] 3 tests.'
SH
chmod +x tools/bin/compute-sanitizer
CUDA_HOME=$PWD/tools want sanitizer 0 '^12 passed, 0 failed, 0 skipped' run --only '*check*'
want sanitized 0 '^--tool racecheck .* --report-api-errors no .*/bin/ops.proof_device_test --gtest' \
  cat sanitized
want no-sanitizer 0 '^0 passed, 0 failed, 12 skipped' run --only '*check*'

# What there is no time for is skipped, and what a run has found is there when
# it is ended.
want within 1 '^mixed_test +skipped +0\.[0-9]  no time left of 1 s$' \
  run --within 1 --only late_test --only mixed_test
want within-late 0 '^late_test +failed .*  ran for over 1 s$' cat gpu_logs/table.txt
run --only good_test --only late_test >/dev/null 2>&1 &
for _ in {1..100}; do
  grep -q '^1 of 2 have not run$' gpu_logs/table.txt && break
  sleep 0.1
done
kill $!
want unfinished 0 '^good_test +passed ' cat gpu_logs/table.txt
want unfinished-rest 0 '^1 of 2 have not run$' cat gpu_logs/table.txt

# Of CUDA's libraries the folders are found; a C++ library that is too old is
# helped out.
echo libcuda_fake.so.1 >b/cuda_libraries
mkdir -p toolkit/lib64
touch toolkit/lib64/libcuda_fake.so.1
CUDA_HOME=$PWD/toolkit want libraries 0 "b/lib:$PWD/toolkit/lib64$" \
  run -- bash -c 'echo "$LD_LIBRARY_PATH"'
program train <<<'[[ $LD_LIBRARY_PATH == */fallback ]] || { echo "no GLIBCXX_9"; exit 1; }'
want fallback 0 'b/lib.*:.*b/lib/fallback$' run -- bash -c 'echo "$LD_LIBRARY_PATH"'
program train <<<'echo "no GLIBC_9"; exit 1'
want too-old 2 'do not run here \(status 1\): no GLIBC_9$' run

exit $((failures > 0))
