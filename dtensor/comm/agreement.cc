// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/agreement.h"

#include <algorithm>
#include <cstring>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

// A short collective takes so little time that mixing every value well would
// make it noticeably slower. Therefore fold() combines many values cheaply, and
// only the results are mixed well.
uint64_t fold(uint64_t h, uint64_t x) { return h * 0x9e3779b97f4a7c15ull + x; }

// Hashes eight characters at a time.
uint64_t quick_hash(std::string_view text) {
  const auto load = [&](size_t at) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof(word));
    return word;
  };
  uint64_t h = text.size(), word = 0;
  if (text.size() < sizeof(word)) {
    for (const char c : text) word = word << 8 | static_cast<unsigned char>(c);
    return fold(h, word);
  }
  for (size_t i = 0; i + sizeof(word) < text.size(); i += sizeof(word))
    h = fold(h, load(i));
  return fold(h, load(text.size() - sizeof(word)));
}

uint64_t hash_of(const Transfer& t) {
  return hash_mix(t.schedule->hash, static_cast<uint64_t>(t.dtype) * 16 +
                                        static_cast<uint64_t>(t.op));
}
uint64_t hash_of(const Buffer& b) {
  return hash_mix(static_cast<uint64_t>(b.n),
                  static_cast<uint64_t>(b.dtype) * 32 +
                      static_cast<uint64_t>(b.op) * 2 + b.one_shot);
}

// Returns the tensors of a call as the error of a disagreement shows them. One
// buffer: "sum, f32, 8 elements". Several: "2 tensors: sum f32 8 elements, max
// i32 1 element". Transfers are shown without sizes.
std::string describe_tensors(const Collective& c) {
  constexpr size_t kMost = 8;
  const size_t count = c.transfers.size() + c.buffers.size();
  const std::string between = count == 1 ? ", " : " ";
  std::vector<std::string> all;
  for (const Transfer& t : c.transfers)
    all.push_back(reduces(c.call->kind) ? fmt::format("{}{}{}", name(t.op),
                                                      between, name(t.dtype))
                                        : std::string(name(t.dtype)));
  for (const Buffer& b : c.buffers)
    all.push_back(fmt::format("{1}{0}{2}{0}{3}{4}", between, name(b.op),
                              name(b.dtype),
                              quantity(b.n, "element", "elements"),
                              b.one_shot ? between + "one-shot" : ""));
  std::string text;
  if (count != 1)
    text = fmt::format("{} tensors{}", count, count > 0 ? ": " : "");
  if (count > kMost) {
    all.resize(kMost);
    all.emplace_back("...");
  }
  return text + fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

uint64_t fingerprint_of(const Collective& c) {
  const uint64_t call = hash_mix(fold(c.call->fingerprint, c.call->lineage),
                                 static_cast<uint64_t>(c.call->kind) |
                                     static_cast<uint64_t>(c.num_bytes) << 8);
  uint64_t tensors = c.transfers.size() + c.buffers.size();
  for (const Transfer& t : c.transfers) tensors = fold(tensors, hash_of(t));
  for (const Buffer& b : c.buffers) tensors = fold(tensors, hash_of(b));
  return hash_mix(fold(call, quick_hash(c.call->op)),
                  fold(tensors, c.sequence));
}

Statement statement_of(const Collective& c) {
  const Call& call = *c.call;
  std::string text = call_to_string(call.kind, c.sequence, {});
  if (c.num_bytes >= 0)
    text += fmt::format(" ({})", quantity(c.num_bytes, "byte", "bytes"));
  else if (call.kind != StepKind::kBarrier)
    text += fmt::format(" ({})", describe_tensors(c));
  if (!call.op.empty()) text += fmt::format(" for {}", call.op);
  if (call.describe) text += fmt::format(": {}", call.describe(call.what));
  if (call.made) text += call.made(call.what);
  return {c.fingerprint, call.fingerprint ^ call.lineage, call.kind,
          std::move(text)};
}

std::string call_to_string(StepKind kind, uint64_t sequence,
                           std::string_view op) {
  std::string text = fmt::format("{} #{}", name(kind), sequence);
  if (!op.empty()) text += fmt::format(" for {}", op);
  return text;
}

std::string not_all_came(std::string_view call, std::span<const int64_t> ranks,
                         std::span<const int64_t> arrived,
                         std::span<const Missing> missing,
                         std::chrono::milliseconds timeout) {
  constexpr size_t kMost = 16;
  std::string who;
  for (size_t i = 0; i < std::min(missing.size(), kMost); ++i)
    who += fmt::format(
        "{}rank {} ({})", i ? ", " : "", missing[i].rank,
        missing[i].last.empty() ? "it has called none" : missing[i].last);
  if (missing.size() > kMost) who += fmt::format(", ... ({})", missing.size());
  return fmt::format(
      "rank{} {} waited for {} s in {} of ranks {}, {}{}; find out what delays "
      "them, or let the others wait longer with --timeout SECONDS "
      "(RunOptions::timeout)",
      arrived.size() == 1 ? "" : "s", ranks_to_string(arrived),
      std::chrono::duration<double>(timeout).count(), call,
      ranks_to_string(ranks),
      missing.empty() ? "and all came, but some of their messages did not"
                      : "and these did not come: ",
      who);
}

std::string ranks_to_string(std::span<const int64_t> ranks) {
  constexpr size_t kMost = 16;
  std::string text = fmt::format(
      "{}", fmt::join(ranks.first(std::min(ranks.size(), kMost)), ","));
  if (ranks.size() > kMost) text += fmt::format(",... ({})", ranks.size());
  return text;
}

void disagree(std::span<const int64_t> ranks, uint64_t sequence,
              std::vector<Statement> all) {
  size_t m = 1;
  while (m < all.size() && all[m].whole == all[0].whole) ++m;
  if (m == all.size())
    fail(name(all[0].kind),
         "ranks {} disagree about a collective of other ranks; let every rank "
         "run the same operators on the same layouts in the same order",
         ranks_to_string(ranks));
  Statement &first = all[0], &other = all[m];
  const bool alike = first.text == other.text;
  if (alike)
    for (Statement* s : {&first, &other})
      s->text += fmt::format(" (fingerprint {:016x})", s->fingerprint);
  fail(name(first.kind),
       "ranks {} and {} disagree about collective #{} of ranks {}: rank {} "
       "calls {}; rank {} calls {}; let every rank run the same operators "
       "on the same layouts in the same order{}",
       ranks[0], ranks[m], sequence, ranks_to_string(ranks), ranks[0],
       first.text, ranks[m], other.text,
       alike ? ", and pass the same values to from_global(); --check "
               "(RunOptions::check) finds a call that differs"
             : "");
}

}  // namespace dtensor
