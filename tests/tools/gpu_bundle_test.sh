#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests tools/gpu_bundle.sh, as far as no nvcc is needed, and what it packs as
# run.sh, on a bundle of stand-ins.
set -u

tools=$PWD/tools tests=$PWD/tests
. tests/want.sh

bundle() { CUDA_HOME=$PWD/${cuda:-none} "$tools/gpu_bundle.sh" "$@"; }
mkdir there
want help 0 '^usage: ' bundle --help
want unknown-flag 2 '^gpu_bundle.sh: there is no flag --frob; see --help$' bundle --frob x
want nowhere 2 '^gpu_bundle.sh: OUT is missing; ' bundle
want no-size 2 '^gpu_bundle.sh: --max needs a number of MiB; write --max 60$' bundle --max 0 x
want no-ending 2 'x.tar.bz2 ends in neither .tar.xz, .tar.zst nor .tar.gz' bundle x.tar.bz2
want no-glibc 2 '^gpu_bundle.sh: --glibc needs a version; write --glibc 2.39$' bundle --glibc x y
want no-cpu 2 '^gpu_bundle.sh: --march needs a CPU' bundle --march
want two 2 'b is one file too many' bundle a b
want exists 2 'there exists already' bundle there
want no-folder 2 'none/x.tar.xz cannot be made, because none is not a folder' bundle none/x.tar.xz
want no-nvcc 2 '^gpu_bundle.sh: a bundle needs nvcc: no nvcc in CUDA_HOME=' \
  bundle x.tar.gz
# A toolkit without cuDNN's C++ headers.
mkdir -p cuda/{bin,include/nv,lib64}
printf '#!/bin/bash\necho "Cuda compilation tools, release x, V13.0.88"\n' >cuda/bin/nvcc
chmod +x cuda/bin/nvcc
touch cuda/include/{cuda_runtime.h,nv/target,cublasLt.h,cudnn.h,nccl.h} \
  cuda/lib64/{libcublasLt.so.13,libcudnn.so.9,libnccl.so.2,libnvrtc.so.13,libcudart_static.a}
XDG_DATA_HOME=$PWD cuda=cuda want no-cudnn 2 \
  "^gpu_bundle.sh: a bundle needs all of CUDA's parts: attention without cuDNN: no cudnn_frontend.h; ./setup.sh --cuda" \
  bundle x.tar.gz
[[ ! -e x.tar.gz ]] || { echo "left x.tar.gz"; failures=$((failures + 1)); }

# A whole toolkit, a tree of files that are packed, and a bazel that has built
# two tests.
touch cuda/include/cudnn_frontend.h
printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 19\n#define CUDNN_PATCHLEVEL 0\n' \
  >cuda/include/cudnn_version.h
touch cuda/include/cublas_api.h
mkdir -p tree/{tools,third_party,tests/bench,tests/conformance/data} path \
  built/{ops/cuda_plugin,programs,tests/{bench,cuda,conformance,dtensor/device,ops/kernels}}
cp "$tools"/gpu_bundle*.sh tree/tools
cp "$tools/../third_party/find_cuda.sh" tree/third_party
touch tree/LICENSE tree/tests/bench/gpu_bench.py tree/tests/conformance/data/{cases.jsonl,tensors.safetensors}
for file in programs/{train,explain,generate} tests/bench/gpu_bench tests/cuda/gpu_properties \
  tests/conformance/conformance tests/dtensor/device/cuda_probe tests/cuda/attention_gpu_test \
  tests/ops/kernels/reduce_gpu_test; do
  cp /bin/true "built/$file"
done
gcc -shared -x c /dev/null -Wl,-soname,libcudnn.so.9 -o libcudnn.so.9
gcc -shared -x c /dev/null -x none -Wl,--no-as-needed "$PWD/libcudnn.so.9" \
  -o built/ops/cuda_plugin/libdtensor_cuda.so
cat >path/bazel <<SH
#!/bin/bash
case \$1 in
  query) printf '%s\n' //tests/ops:kernels/reduce_gpu_test "//tests/cuda:\${TEST:-attention_gpu_test}" ;;
  info) echo "$PWD/built" ;;
esac
SH
chmod +x path/bazel
pack() { CUDA_HOME=$PWD/cuda PATH=$PWD/path:$PATH tree/tools/gpu_bundle.sh "$@"; }
TEST=new_gpu_test want not-in-a-leg 2 'no leg of tools/gpu_bundle_run.sh runs cuda.new_gpu_test; add' \
  pack x.tar.gz
want packed 0 '^.*/x.tar.gz: [0-9.]+ MiB, unpacked ' pack x.tar.gz
want parts 0 '^ +[0-9.]+  bin/ops.kernels.reduce_gpu_test$' pack x.tar.gz
want versions-built 0 '^commit .*, nvcc 13.0.88 for 90-real, .* cuDNN 9.19.0,' pack x.tar.gz
want needs 0 '^needs of the other machine: GLIBC_2\.[0-9]+, .* libcudnn.so.9$' pack x.tar.gz
want in-archive 0 '^gpu_bundle/bin/cuda.attention_gpu_test$' tar tzf x.tar.gz
want xz 0 '^gpu_bundle/run.sh$' bash -c "$(declare -f pack); pack x.tar.xz && tar tf x.tar.xz"
want too-new 2 'the programs need GLIBC_2\.[0-9]+, but the machine with the GPU has GLIBC_2.0; build' \
  pack --glibc 2.0 y.tar.gz
# One that is too large is not made, and nothing of it is left.
head -c 3000000 /dev/urandom >tree/LICENSE
want too-large 2 'y.tar.gz would have [0-9.]+ MiB, more than 2; write a name that ends in .tar.xz' \
  pack --max 2 y.tar.gz
want no-rest 2 '' ls y.tar.gz y.tar.gz.part

# ---------------------------------------------------------------------------
mkdir -p b/bin b/lib/fallback
cp "$tools/gpu_bundle_run.sh" b/run.sh
cp "$tests/bench/gpu_bench.py" b
touch b/cuda_libraries
echo 'commit 1' >b/built

# program NAME: one that does what stdin says.
program() { { echo '#!/bin/bash' && cat; } >"b/bin/$1" && chmod +x "b/bin/$1"; }
program cuda_probe <<'SH'
echo 'libsomething.so: a warning of no interest'
[[ ${FAKE_GPU:-} ]] && echo '1 devices' || echo '[cuda] none here'
SH
program conformance <<<'echo "12 passed, 0 failed, 0 skipped"'
program gpu_properties <<<'echo properties >"$1/cudnn_device.json"; echo "5 bytes"'
# It hangs in the case $HANGS.
program gpu_bench <<'SH'
[[ $1 != --list ]] || { printf '%s\n' G{1..9}/case; exit; }
while (($#)); do
  [[ $1 == --cases ]] && name=$2
  [[ $1 == --json ]] && json=$2
  shift
done
[[ $name != "${HANGS:-}" ]] || { echo "hangs in $name"; touch hanging; exec sleep 60; }
ratio=0.9
[[ $name != G7/case ]] || ratio=0.2
[[ ! ${json:-} ]] || printf '[{\n "case": "%s",\n "ratio": %s\n}]\n' "$name" $ratio >"$json"
echo "$name    12.5 us, 0.900 of a copy; goal >= 0.88: met"
SH
# A process of several that is to train for long notices that another is killed.
program train <<'SH'
end=2.5 device=cpu mesh="" graph=""
while (($#)); do
  [[ $1 == --device ]] && device=$2
  [[ $1 == --ranks-per-gpu ]] && sharing=1
  [[ $1 == nccl ]] && nccl=1
  [[ $1 == --json ]] && json=$2
  [[ $1 == --mesh ]] && mesh=$2
  [[ $1 == --cuda-graph ]] && graph=" graph"
  [[ $1 == --steps ]] && steps=$2
  [[ $1 == --rendezvous ]] && at=$2
  shift
done
[[ $device == cuda || ! ${sharing:-} ]] || exit 2
[[ $device == cuda && ${FAKE_GPU:-} == wrong ]] && end=2.50004
[[ ! ${json:-} ]] ||
  { echo '{"losses": ['; for i in {1..19}; do echo "5.$i,"; done; echo "$end"; echo '],"norms": [1.5]}'; } >"$json"
[[ ! ${sharing:-} || ! ${nccl:-} ]] || exit 2
[[ ${NCCL_HOSTID:-} ]] || exit 0
echo "$mesh$graph: $RANK/$LOCAL_RANK of $WORLD_SIZE/$LOCAL_WORLD_SIZE, $NCCL_HOSTID, GPU $CUDA_VISIBLE_DEVICES" >>processes
[[ $FAKE_GPU != one ]] || { echo 'Duplicate GPU detected'; exit 1; }
((steps > 20)) || exit 0
echo $$ >"$at.$RANK"
((RANK == 0)) || exec sleep 60
[[ $FAKE_GPU != early ]] || { echo '[run] rank 1 failed: it is not there'; exit 1; }
until [[ -s $at.1 ]]; do sleep 0.01; done
echo 'step 1/1000000  loss 5.1' >&2
while kill -0 "$(<"$at.1")"; do sleep 0.01; done
[[ $FAKE_GPU != deaf ]] || { echo deaf; touch hanging; exec sleep 60; }
[[ $FAKE_GPU == mute ]] || echo '[run] rank 1 failed: its connection has ended'
exit 1
SH
program generate <<'SH'
[[ $* == *int8* && $* == *cuda* && ${FAKE_GPU:-} == wrong ]] && echo '0: 8 9' || echo '0: 7 9'
SH
for test in cuda.attention_gpu_test {dtensor.comm.nccl_gpu_test,program.device_choice_test} \
  ops.cuda_plugin.{cuda_device,boxes}_test nn.recording_device_test \
  dtensor.redistribute_pairs_test ops.{proof_device_test,kernels.{reduce,rows,select,training}_gpu_test}; do
  program $test <<<'echo "[  PASSED  ] 3 tests."'
done

run() { b/run.sh "$@"; }
# in_archive LEG FILE: what the archive of a leg has.
in_archive() { tar -xzOf "gpu_logs/leg$1.tar.gz" "leg$1/$2"; }
want run-help 0 '^usage: ' run --help
want run-unknown-flag 2 '^run.sh: there is no flag --frob; see --help$' run --frob
want run-no-value 2 '^run.sh: --only needs a value' run --only
want run-no-leg 2 '^run.sh: there is no leg 4; write --leg 1, --leg 2 or --leg 3$' run --leg 4
want run-within 2 '^run.sh: --within 0 is not a number of seconds' run --within 0
want run-no-item 2 '^run.sh: no item is named frob; --list prints the names$' run --only frob
want run-list 0 '^2 train tp=3 f32$' run --list
want run-list-cases 0 '^1 bench G6/case tp=4$' run --list --leg 1
want run-command 3 '^hello$' run -- bash -c 'echo hello; exit 3'

# Without a GPU all but the libraries' versions is skipped. A line of another library says nothing of it.
want no-gpu 0 '^leg 3: 1 passed, 0 failed, [0-9]+ skipped in ' run
for leg in 1 2 3; do
  want "no-gpu $leg" 0 '^device +skipped .*  no GPU: \[cuda\] none here' in_archive $leg table.txt
done

# Where there is one, or what it needs, and it cannot be used, that is no reason
# to skip.
touch gpu0
echo libnowhere.so.1 >b/cuda_libraries
GPU_FILES="$PWD/gpu*" want unusable 1 '^device +failed .*  \[cuda\] none here' \
  run --leg 1 --only device
GPU_FILES="$PWD/gpu*" want not-found 1 '^run.sh: not found: libnowhere.so.1; ' \
  run --leg 1 --only device
: >b/cuda_libraries

# With one, each leg runs to its end.
export FAKE_GPU=right
GPU_FILES="$PWD/gpu*" want no-tool 0 '^device +passed .*  no nvidia-smi' run --leg 1 --only device
for leg in 1 2 3; do
  OUT=gpu_logs want "leg $leg" 0 "^leg $leg: [1-9][0-9]* passed, 0 failed, [0-9]+ skipped in " \
    run --leg $leg
  want "leg $leg whole" 1 '^0$' bash -c \
    "tar -xzOf gpu_logs/leg$leg.tar.gz leg$leg/table.txt | grep -c 'have not run'"
done
for line in 'attention +passed .*  3 cases' 'kernels rows +passed .*  3 cases' \
  'train dp=2 f32 +passed .*  20 losses, 0.0e\+00 from the CPU.s +<= 1e-4$' \
  'generate +passed .*  1 texts of 20 tokens, as on the CPU' 'bench G9/case +passed' \
  'bench G3/case +passed .*  12.5 us, 0.900 of a copy +>= 0.88: met$' \
  'bench G6/case tp=4 +passed' 'properties +passed .*  5 bytes'; do
  want "leg 1's $line" 0 "^$line" in_archive 1 table.txt
done
want saved 0 '^properties$' in_archive 1 cudnn_device.json
want case 0 '"case": "G3/case"' in_archive 1 G3_case.json
for line in 'train tp=3 f32 in a graph +passed .*  20 losses' \
  'a killed process +passed .*  the other ended [0-9.]+ s later: \[run\] rank 1 failed: its conn' \
  'train dp=1 f32 with NCCL +passed .*  20 losses' 'proof +passed .*  12 cases' \
  'conformance +passed .*  12 passed, 0 failed, 0 skipped' \
  'train tp=2 f32, processes +passed .*  20 losses' \
  'train dp=2,tp=2 f32, processes in graphs +passed .*  20 losses' 'memcheck rows +skipped .*  no compute-sanitizer'; do
  want "leg 2's $line" 0 "^$line" in_archive 2 table.txt
done
for line in 'torch G4/case +skipped .*  python3 has no torch' 'bench G1/case tuned +passed' \
  'bench G6/case tp=8 +passed'; do
  want "leg 3's $line" 0 "^$line" in_archive 3 table.txt
done
# All of them have one GPU and a machine of their own, as far as NCCL knows.
for mesh in "tp=2 2" "tp=2_graph 2" "dp=2,tp=2 4" "dp=2,tp=2_graph 4"; do
  n=${mesh#* } mesh=${mesh% *}
  for ((i = 0; i < n; i++)); do
    want "rank $i of $mesh" 0 "^${mesh/_/ }: $i/$i of $n/$n, host$i, GPU 0$" cat processes
  done
done
# A leg begins with these, so that they are not what is cut off.
want first 0 '^train tp=2 f32 in a graph|train tp=2 f32, processes|a killed process|proof$' \
  bash -c "tar -xzOf gpu_logs/leg2.tar.gz leg2/table.txt | grep -oE '^(train tp=2 f32 in a graph|train tp=2 f32, processes|a killed process|proof) ' | sed 's/ $//' | paste -sd '|'"
want half-visible 0 '^tp=2: 1/1 of 2/2, host1, GPU 3$' \
  bash -c 'CUDA_VISIBLE_DEVICES=3,5 b/run.sh --leg 2 --only "train tp=2 f32, processes" && cat processes'
export FAKE_GPU=one
want refused 0 '^train tp=2 f32, processes +skipped .*  NCCL refuses two ranks' \
  run --only '*processes'
want refused-killed 0 '^a killed process +skipped .*  NCCL refuses two ranks' run --only 'a killed*'
FAKE_GPU=deaf want deaf 1 '^a killed process +failed .*  ran for over 3 s' \
  run --only 'a killed*' --within 3
FAKE_GPU=mute want mute 1 '^a killed process +failed .*  the other ended [0-9.]+ s later: +$' \
  run --only 'a killed*'
FAKE_GPU=early want early 1 '^a killed process +failed .*  ended before the first step' \
  run --only 'a killed*'
export FAKE_GPU=wrong
want wrong-losses 1 '^train dp=2 f64 +failed .*  20 losses, 1.6e-05 from the CPU' \
  run --only 'train dp=2 f64'
want other-tokens 1 "^generate int8 +failed .*  other tokens than the CPU's" \
  run --leg 2 --only 'generate int8'
want same-tokens 0 '^generate tp=2 +passed' run --leg 2 --only 'generate tp=2'
want near-losses 0 '^train dp=2 f32 +passed .*  20 losses, 1.6e-05 from the CPU' \
  run --leg 1 --only 'train dp=2 f32'

# CUDA's tools and torch run what they are to run, where there are some: torch
# with the libraries of its caller.
mkdir -p tools/bin
printf '#!/bin/bash\necho "$@" >>sanitized\necho "[  PASSED  ] 3 tests."\n' >tools/bin/compute-sanitizer
printf '#!/bin/bash\necho "$@" >>profiled\n' >tools/bin/ncu
# torch hangs in one case and breaks off in another.
cat >tools/bin/python3 <<'SH'
#!/bin/bash
[[ $1 == */gpu_bench.py ]] || exec /usr/bin/python3 "$@"
echo "$2 with $LD_LIBRARY_PATH" >>torched
echo ready
while IFS=$'\t' read -r name against json; do
  [[ $name != "${TORCH_HANGS:-}" ]] || { echo "$name hangs"; touch hanging; exec sleep 60; }
  [[ $name != "${TORCH_FAILS:-}" ]] || { echo 'CUDA error'; exit 3; }
  grep -q "\"$name\"" "$against" && echo torch >"$json"
  echo "$name eager 7.0 us; goal >= 1.0 of eager: met"
  echo "done"
done
echo ended >>torched
SH
chmod +x tools/bin/*
CUDA_HOME=$PWD/tools want sanitizer 0 '^leg 2: 14 passed, 0 failed, 0 skipped' run --only '*check*'
want sanitized 0 '^--tool racecheck .* --report-api-errors no .*/bin/ops.proof_device_test --gtest' \
  cat sanitized
with_torch() { LD_LIBRARY_PATH=$PWD/callers PATH=$PWD/tools/bin:$PATH run --leg 3 --only 't*' --only 'p*' "$@"; }
want others 0 '^torch G4/case +passed .*  eager 7.0 us +>= 1.0 of eager: met$' with_torch
want one-torch 0 "^--serve with $PWD/callers ended$" bash -c 'paste -sd " " torched'
want others-file 0 '^torch$' in_archive 3 G8_case.torch.json
want profiled 0 'gpu_bench --device cuda --cases G7/case --rounds 0$' head -n 1 profiled
want own-clocks 0 '^4$' grep -c -- '^--clock-control none .* --launch-count 60 ' profiled
# A case that torch does not survive costs its row alone. Another process goes on.
rm torched
TORCH_FAILS=G3/case want torch-fails 1 '^leg 3: 10 passed, 1 failed, 0 skipped in ' with_torch
want torch-failed 0 '^torch G3/case +failed .*  status 3: CUDA error' in_archive 3 table.txt
want two-torches 0 '^2$' grep -c serve torched
rm torched
TORCH_HANGS=G8/case want torch-hangs 1 '^leg 3: 2 passed, 1 failed, 8 skipped in ' \
  with_torch --within 6
want torch-hung 0 '^torch G8/case +failed .*  ran for over [1-6] s' in_archive 3 table.txt
want torch-before 0 '^torch G3/case +passed' in_archive 3 table.txt
# A case alone may be given less than the leg has left.
sed 's/"torch \$name" 60/"torch $name" 4/' b/run.sh >b/impatient.sh
chmod +x b/impatient.sh
run() { b/impatient.sh "$@"; }
TORCH_HANGS=G4/case want torch-hangs-first 1 '^leg 3: 10 passed, 1 failed, 0 skipped in ' with_torch
want torch-hung-first 0 '^torch G4/case +failed +[3-9]\..*  ran for over 4 s: hangs' \
  in_archive 3 table.txt
run() { b/run.sh "$@"; }

# A failure is reported, and the rest runs.
export FAKE_GPU=right
program cuda.attention_gpu_test <<'SH'
printf '[       OK ] A.B (0 ms)\n[       OK ] A.C (0 ms)\na.cc:7: Failure\n[  PASSED  ] 3 tests.\n[  FAILED  ] 1 test, listed below:\n'
exit 1
SH
program ops.kernels.reduce_gpu_test <<<'echo "[  PASSED  ] 0 tests."'
program ops.kernels.rows_gpu_test <<'SH'
printf 'x.cc:1: Skipped\nno half types\n'
printf '[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n'
SH
program ops.kernels.training_gpu_test <<<'kill -SEGV $$'
want failures 1 '^leg 1: 1 passed, 3 failed, 1 skipped in ' run --leg 1 --only 'kernels*' \
  --only attention
for line in 'attention +failed .*  2 cases passed, 1 failed, status 1: a.cc:7: Failure' \
  'kernels reduce +failed' 'kernels rows +skipped .*  0 cases, 1 skipped: no half types' \
  'kernels select +passed' 'kernels training +failed .*  0 cases passed, 0 failed, status 139'; do
  want "failures' $line" 0 "^$line" in_archive 1 table.txt
done

# A leg ends in time: what runs is ended, and what is left is skipped.
HANGS=G3/case want within 1 '^bench G7/case +skipped +0\.[0-9]  no time left of 4 s' \
  run --leg 1 --within 4 --only 'bench*'
want within-late 0 '^bench G3/case +failed .*  ran for over [1-4] s' in_archive 1 table.txt
want within-before 0 '^bench G2/case +passed' in_archive 1 table.txt

# Killed at whatever place, a leg has left the rows of the items before.
with_hang() {
  LD_LIBRARY_PATH=$PWD/callers PATH=$PWD/tools/bin:$PATH exec b/run.sh --leg "$number" --only 'train *' \
    --only 'a killed*' --only 'bench*' --only 'torch*' "$@"
}
while IFS='|' read -r number hangs rows; do
  all=$(with_hang --list | wc -l)
  for signal in TERM KILL; do
    rm -rf gpu_logs hanging
    export HANGS="" TORCH_HANGS="" FAKE_GPU=right
    case $number in
      1) HANGS=$hangs ;;
      2) FAKE_GPU=$hangs ;;
      3) TORCH_HANGS=$hangs ;;
    esac
    with_hang >printed 2>&1 &
    leg=$!
    for _ in {1..300}; do
      [[ ! -e hanging ]] || break
      sleep 0.1
    done
    kill -$signal $leg
    wait $leg 2>/dev/null
    at="$signal in leg $number at $hangs"
    want "killed with $at" 0 "^$rows$" \
      bash -c "tar -xzOf gpu_logs/leg$number.tar.gz leg$number/table.txt | grep -c ' passed '"
    want "printed before $at" 0 "^$rows$" grep -c ' passed ' printed
    # A leg that is told to end also says what the item that hangs has said.
    [[ $signal == KILL ]] ||
      want "hanging after $at" 0 "$hangs" bash -c "tar -xzOf gpu_logs/leg$number.tar.gz"
    want "the rest at $at" 0 "^$((all - rows)) of $all have not run$" in_archive "$number" table.txt
  done
done <<'END'
1|G3/case|3
1|G9/case|9
2|deaf|8
3|G7/case|3
END
export HANGS="" TORCH_HANGS="" FAKE_GPU=right

# Nor does one leave processes of a test that runs in parts.
program ops.proof_device_test <<<'echo $$ >>parts; exec sleep 60'
b/run.sh --leg 2 --only proof >printed 2>&1 &
leg=$!
parts() { [[ ! -e parts ]] || cat parts; }
for _ in {1..100}; do
  (($(parts | wc -l) < 4)) || break
  sleep 0.1
done
kill $leg
wait $leg 2>/dev/null
left_over() {
  local part left
  for _ in {1..20}; do
    left=0
    for part in $(parts); do
      ! kill -0 "$part" 2>/dev/null || left=$((left + 1))
    done
    ((left)) || break
    sleep 0.1
  done
  echo "$left of $(parts | wc -l) run on"
}
want parts 0 '^0 of 4 run on$' left_over

# Python's packages come before a toolkit, and both after nothing else. A C++
# library that is too old is helped out.
echo libcuda_fake.so.1 >b/cuda_libraries
mkdir -p toolkit/lib64 site/nvidia/fake/lib
touch toolkit/lib64/libcuda_fake.so.1
CUDA_HOME=$PWD/toolkit want libraries 0 "b/lib:$PWD/toolkit/lib64$" \
  run -- bash -c 'echo "$LD_LIBRARY_PATH"'
touch site/nvidia/fake/lib/libcuda_fake.so.1
CUDA_HOME=$PWD/toolkit PYTHONPATH=$PWD/site LD_LIBRARY_PATH=$PWD/toolkit/lib64 want wheels 0 \
  "b/lib:$PWD/site/nvidia/fake/lib:$PWD/toolkit/lib64$" run -- bash -c 'echo "$LD_LIBRARY_PATH"'
# A library that tells its version.
printf '#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 91900; }\n' |
  gcc -x c - -shared -o site/nvidia/fake/lib/libcudnn_fake.so.9
echo libcudnn_fake.so.9 >b/cuda_libraries
PYTHONPATH=$PWD/site want versions 0 '^libraries +passed .*  cudnn_fake 9.19.0 ' \
  run --leg 1 --only libraries
want from 0 "^libcudnn_fake.so.9 9.19.0 $PWD/site/nvidia/fake/lib/libcudnn_fake.so.9$" \
  in_archive 1 libraries.log
program train <<<'[[ $LD_LIBRARY_PATH == */fallback ]] || { echo "no GLIBCXX_9"; exit 1; }'
want fallback 0 'b/lib.*:.*b/lib/fallback$' run -- bash -c 'echo "$LD_LIBRARY_PATH"'
program train <<<'echo "no GLIBC_9"; exit 1'
want too-old 2 'do not run here \(status 1\): no GLIBC_9$' run

exit $((failures > 0))
