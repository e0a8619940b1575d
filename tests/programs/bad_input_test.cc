// SPDX-License-Identifier: Apache-2.0
// Bad input ends with exit code 2 and one sentence that has the values.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

struct Case {
  std::string program, args;
  std::string says;  // part of the sentence
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.program << " " << c.args;
}

class BadInput : public ::testing::TestWithParam<Case> {};

TEST_P(BadInput, IsOneSentence) {
  const Case& c = GetParam();
  const Ran r = run_program(c.program, c.args);
  EXPECT_EQ(r.code, 2) << c.args << "\n" << r.err;
  EXPECT_EQ(r.out, "") << c.args;
  EXPECT_LE(std::count(r.err.begin(), r.err.end(), '\n'), 2) << r.err;
  EXPECT_NE(r.err.find(c.says), r.err.npos) << c.args << "\n" << r.err;
}

// A small training, so that it ends soon if bad input is accepted by mistake.
const char kTiny[] =
    " --layers 1 --hidden 8 --heads 2 --seq 8 --batch 2 --steps 1 --sample 0 ";

std::vector<Case> train_cases() {
  const std::string short_text = write_file("short", "8 bytes.");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--schedule 1f1b", "mesh dp=2,tp=2 has no axis pp; write --mesh pp=2"},
      {"--ranks-per-process 2",
       "it is for a run of several processes (--backend mpi or tcp)"},
      {"--mesh 2,tp=2", "'2' in '2,tp=2' has no name; write NAME=SIZE"},
      {"--schedule 2f1b --mesh pp=2",
       "no schedule of that name; name a file that exists, or one of gpipe, "
       "1f1b"},
      {"--mesh dp=2,dp=2", "twice"},
      {"--mesh dp=0", "size 0"},
      {"--mesh tp=-1", "size -1"},
      {"--mesh zz=2", "zz"},
      {"--mesh dp", "dp=2,tp=4"},
      {"--mesh ''", "dp=2,tp=4"},
      {"--mesh dp=4096", "4096 ranks"},
      {"--mesh dp=99999999999999", "99999999999999"},
      {"--device gpu", "'gpu' is not a device; write cpu, cuda or cuda:0"},
      {"--device cuda:x", "'cuda:x'"},
      {"--device cuda:-1", "'cuda:-1'"},
      {"--device cuda:9999", "cuda"},
      {"--device cuda --mesh dp=1000", "cuda"},
      {"--ranks-per-gpu 2", "it is for --device cuda"},
      {"--cuda-graph", "it is for --device cuda, but this is --device cpu"},
      {"--dtype f16 --cuda-graph", "the loss scale of 65536 changes"},
      {"--loss-scale -1", "-1 is too small"},
      {"--device cuda --ranks-per-gpu 0", "0 is too small"},
      {"--tf32", "it is for --device cuda"},
      {"--tune-gemm", "it is for --device cuda"},
      {"--deterministic", "it is for --device cuda"},
      {"--backend nccl", "nccl is for --device cuda"},
      {"--backend nccl --device cuda --ranks-per-gpu 2", "one rank per GPU"},
      {"--backend gloo", "'gloo'; write one of threads, mpi, tcp, nccl"},
      {"--text /no/such/file", "/no/such/file"},
      {"--text /", "cannot read /"},
      {"--eval /no/such/file", "/no/such/file"},
      {"--save /proc/none", "/proc/none"},
      {"--json /no/such/file.json", "/no/such/file.json"},
      {"--flight /proc/none", "[--flight] cannot write to /proc/none"},
      {"--flight x --dry-run", "leave out --flight or --dry-run"},
      {"--flight x --explore", "leave out --flight or --explore"},
      {"--trace /no/such/file.json", "[--trace] cannot write /no/such"},
      {"--trace x --dry-run", "leave out --trace or --dry-run"},
      {"--leyers 2", "did you mean --layers"},
      {"--unknown", "there is no flag --unknown"},
      {"-x", "there is no flag -x"},
      {"word", "'word'"},
      {"--batch", "a value is missing"},
      {"--model bert", "gpt, llama, mixtral"},
      {"--dtype f8", "f32, f64, bf16, f16"},
      {"--zero 4", "4 is too large"},
      {"--zero -1", "-1"},
      {"--zero 1 --mesh tp=2", "no axis fsdp, dp or ep to split over"},
      {"--zero 2 --gather-budget 100", "it is for --zero 3"},
      {"--zero 3 --gather-budget -100", "-100"},
      {"--sequence-parallel --mesh dp=2", "no axis tp; write --mesh tp=2"},
      {"--context ring --mesh dp=2", "no axis cp; write --mesh cp=2"},
      {"--context rings --mesh cp=2", "auto, ring, all-to-all"},
      {"--context-memory 9", "has no axis cp; write --mesh cp=2"},
      {"--context ring --context-memory 9 --mesh cp=2",
       "this is --context ring"},
      {"--accumulate 0", "0 is too small"},
      {"--accumulate 9 --batch 8",
       "there are 9 micro-batches, but --batch is 8"},
      {"--resume", "there is no --checkpoint"},
      {"--every 3", "there is no --checkpoint"},
      {"--keep 3", "there is no --checkpoint"},
      {"--checkpoint x --every 0", "0 is too small"},
      {"--checkpoint /proc/none", "/proc/none"},
      {"--checkpoint /proc/version", "/proc/version"},
      {"--check-replicas -1", "-1"},
      {"--recompute blocks", "none, block, attention, offload"},
      {"--recompute offload", "which has no other"},
      {"--offload-state", "which has no other"},
      {"--cuda-graph --dry-run --offload-state", "or --offload-state"},
      {"--cuda-graph --dry-run --recompute offload", "or --recompute offload"},
      {"--dry-run --recompute offload --recompute-memory 9",
       "even if every block's activations are offloaded, but at most 9"},
      {"--recompute block --recompute-memory 9", "leave one out"},
      {"--recompute-memory 9", "even if every block is recomputed"},
      {"--grad-wire f8", "f32, f64, bf16, f16"},
      {"--lr nan", "not finite"},
      {"--lr inf", "not finite"},
      {"--lr -1", "-1 is too small"},
      {"--lr 1e999", "does not fit into 64 bits"},
      {"--lr fast", "'fast'"},
      {"--clip -0.5", "-0.5 is too small"},
      {"--weight-decay nan", "not finite"},
      {"--warmup -1", "-1 is too small"},
      {"--warmup 2", "it is 2, but --steps is 1; write at most 1"},
      {"--seed -1", "-1 is too small"},
      {"--batch 0", "0 is too small"},
      {"--batch 1.5", "'1.5'"},
      {"--batch 99999999999999999999", "does not fit into 64 bits"},
      {"--kv-heads 1", "kv-heads"},
      {"--kv-heads 0", "0 is too small"},
      {"--experts 4",
       "experts is 4, but this model is a gpt, which has no experts; leave"},
      {"--model llama --top-k 1",
       "top-k is 1, but this model is a llama, which has no experts; leave"},
      {"--model mixtral --experts 2 --top-k 3",
       "top-k is 3; write a number from 1 to the number of experts, 2"},
      {"--model mixtral --experts 0", "0 is too small"},
      {"--router-loss 0.1",
       "it is for mixtral or qwen3-moe, but this model is a gpt"},
      {"--mesh ep=2", "axis ep, which splits experts, but a gpt has none"},
      {"--model mixtral --cuda-graph", "the data decide how many tokens"},
      {"--hidden 9", "9"},
      {"--hidden 9000000000000000000 --heads 1", "9000000000000000000"},
      {"--model llama --hidden 16 --heads 4 --kv-heads 3", "3"},
      {"--model llama --hidden 6", "3"},
      {"--text " + short_text, "needs 9 bytes, but there are only 8 in"},
      {"--eval " + short_text + " --seq 9",
       "needs 9 bytes, but there are only 8 in " + short_text},
      {"--layout nonsense", "nonsense"},
      {"--layout '*.nothing=R,R'", "nothing"},
      {"--layout '*.c_fc.weight=R,S7'", "S7"},
  };
  std::vector<Case> list;
  for (const auto& [args, says] : cases)
    list.push_back({"train", kTiny + args, says});
  return list;
}

std::vector<Case> plan_cases() {
  const std::string short_cost = write_file("short_cost", "{\"axes\": [{}]}");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "--shape 64,64"},
      {"--shape 8 --from S0", "--to S0,R"},
      {"--shape 8 --to S0", "--from R,S0"},
      {"--from R,R --to R,S0 --frm S0", "did you mean --from"},
      {"--from R,R --to R,S0 --shape 8x", "'8x'"},
      {"--from R,R --to R,S0 --shape -8", "'-8'"},
      {"--from R,R --to R,S0 --shape 99999999999999999999",
       "'99999999999999999999'"},
      {"--from R,R --to R,S0 --shape 4000000000,4000000000", "too large"},
      {"--from R,R --to R,S0 --shape 8 --dtype f8", "f32, f64, bf16, f16"},
      {"--from R,R --to R,S0 --shape 8 --mesh 2y4", "'2y4'"},
      {"--from R,R --to R,S0 --shape 8 --mesh x=2,x=4", "twice"},
      {"--from R,R --to R,S0 --shape 8 --mesh '2x2 of ranks 0,1'",
       "the list has 2"},
      {"--from R,R --to R,S0 --shape 8 --mesh '2x2 of ranks 0,1,2,1'",
       "rank 1 twice"},
      {"--from R,R --to R --shape 8", "1"},
      {"--from R,R --to R,S1 --shape 8", "S1"},
      {"--from R,R --to R,Q --shape 8", "Q"},
      {"--from R,R --to '[{a0,a0}]' --shape 8", "a0"},
      {"--from R,R --to '[{a0},{a0}]' --shape 8,8", "a0"},
      {"--from R,R --to '[{zz}]' --shape 8", "zz"},
      {"--from R,R --to 'S0@0|3|9,R' --shape 8", "end at 9"},
      {"--from R,R --to 'S0@0|5|3|8,R' --shape 8", "0|5|3|8"},
      {"--from R,R --to S0/0,R --shape 8", "a granule of 0"},
      {"--from R,R --to R,S0 --shape 8 --to-mesh 8", "a0=8"},
      {"--from R,R --to R,S0 --shape 8 --to-mesh 2z4", "'2z4'"},
      {"--from R,R --to R,S0 --shape 8 --cost /no/file", "/no/file"},
      {"--from R,R --to R,S0 --shape 8 --cost " + short_cost,
       "an entry for each axis"},
      {"--from R,R --to R,S0 --shape 8 --svg /no/such/file.svg",
       "/no/such/file.svg"},
      {"--from R,R --to R,S0 --shape 8 --svg /", "cannot write /"},
      {"--from R,R --to R,S0 --shape 8 --mesh 2048x2048 --svg x", "4194304"},
      {"--from R,R --to R,S0 --shape 8 --json /no/such/file", "/no/such/file"},
  };
  std::vector<Case> list;
  for (const auto& [args, says] : cases) list.push_back({"plan", args, says});
  return list;
}

std::vector<Case> other_cases() {
  return {
      {"explain", "", "--op matmul"},
      {"explain", "--op matmul --model gpt", "--op matmul"},
      {"explain", "--op nothing --in 4x4", "there is no operator 'nothing'"},
      {"explain", "--op matmul", "no inputs"},
      {"explain", "--op matmul --in 4x4", "matmul is 2, not 1"},
      {"explain", "--op matmul --in 4x4 --in 5x4", "4"},
      {"explain", "--op matmul --in 4x4:S2,R --in 4x4", "S2"},
      {"explain", "--op matmul --in 4x4:Q,R --in 4x4", "Q"},
      {"explain", "--op matmul --in 4x4:R --in 4x4", "R"},
      {"explain", "--op matmul --in 4y4:R,R --in 4x4", "4y4"},
      {"explain", "--op 'mk,kn->' --in 4x4:R,R", "1"},
      {"explain", "--op matmul --in 4x4 --in 4x4 --cost /no/file", "/no/file"},
      {"explain", "--op matmul --in 4x4 --in 4x4 --cost h300", "h100, h200"},
      {"train", "--dry-run --cost h300", "h100, h200"},
      {"explain", "--op matmul --in 4x4 --in 4x4 --mesh a=2,a=2", "twice"},
      {"explain", "--op softmax --in 4x4 --args axis=1", "one of dim"},
      {"explain", "--op softmax --in 4x4 --args dim=x", "'x'"},
      {"explain", "--op slice --in 4x4 --args step", "NAME=VALUE"},
      {"explain", "--op attention --in 4x4 --in 4x4 --in 4x4", "[4, 4]"},
      {"explain", "--model gpt --in 4x4", "--op"},
      {"explain", "--model gpt --mesh zz=4", "zz"},
      {"explain", "--model gpt --hidden 100", "100"},
      {"explain", "--compare dp,tp --op add --in 4", "it is for --model"},
      {"explain", "--model gpt --compare dp,zero4", "'zero4'"},
      {"explain", "--model gpt --compare dp,", "''"},
      {"explain", "--model gpt --compare tp=x", "'tp=x'"},
      {"explain", "--model gpt --compare tp=3 --mesh 4",
       "tp=3 does not divide 4, the number of ranks; write tp=N"},
      {"explain", "--model gpt --compare dp --svg /no/such/file.svg",
       "/no/such/file.svg"},
      {"explain", "--model gpt --svg x.svg", "it is for --compare"},
      {"explain", "--op matmul --in 4x4:R --in 4x4:R --svg x.svg",
       "it is for --compare"},
      {"explain", "--model gpt --args dim=1", "[--args] it is for --op"},
      {"train", "--dry-run=false", "[--dry-run] it takes no value"},
      {"calibrate", "--mesh 1", "one rank"},
      {"calibrate", "--mesh a=2,a=2", "twice"},
      {"calibrate", "--mesh 4096", "4096 ranks"},
      {"calibrate", "--mesh '2 of ranks 0,5'", "rank 5"},
      {"calibrate", "--dry-run", "--dry-run"},
      {"calibrate", "--max-bytes 10", "10 is too small"},
      {"calibrate", "--rounds 0", "0 is too small"},
      {"calibrate", "--out /no/such/file", "/no/such/file"},
      {"calibrate", "--svg /no/such/file", "/no/such/file"},
      {"calibrate", "--round 3", "did you mean --rounds"},
      {"plan", "--from R,R --to R,S0 --shape 8 --trace x", "leave out --trace"},
      {"explain", "--op add --in 4 --flight x", "leave out --flight"},
      {"flight", "", "no files were given"},
      {"flight", "/no/such/rank-0.json", "cannot read /no/such/rank-0.json"},
      {"flight", write_file("empty", ""), "is not JSON"},
      {"flight", write_file("other", "{}"),
       "is not a file of the flight recorder"},
      {"flight", "x --svg /no/such/file.svg", "cannot read x"},
      {"flight", "--last -1 x", "-1 is too small"},
      {"flight", "--mesh 4 x", "there is no flag --mesh"},
      {"01_mesh", "--mesh dp=0", "size 0"},
      {"01_mesh", "--mesh '2 of ranks 7,3'", "rank 7"},
      {"02_placements", "--mesh dp=2,tp=2", "dp"},
      {"03_tp_mlp", "--mesh dp=2", "dp"},
      {"04_dp_tp_train", "--mesh dp=2", "tp=1"},
      {"04_dp_tp_train", "--mesh 2x2", "a0"},
      {"05_fsdp", "--mesh tp=2", "knows only dp; write --mesh dp=4"},
      {"08_ring_attention", "--mesh tp=2", "knows only cp"},
      {"04_dp_tp_train", "--steps 3", "--steps"},
  };
}

INSTANTIATE_TEST_SUITE_P(Train, BadInput, ::testing::ValuesIn(train_cases()));
INSTANTIATE_TEST_SUITE_P(Plan, BadInput, ::testing::ValuesIn(plan_cases()));
INSTANTIATE_TEST_SUITE_P(Others, BadInput, ::testing::ValuesIn(other_cases()));

}  // namespace
}  // namespace dtensor::testing
