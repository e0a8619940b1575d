// How the members of a group in several processes agree on a collective.
#include <algorithm>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#include "dtensor/comm/process_communicator.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

// How a process describes a member's call when fingerprints differ.
struct Said {
  uint64_t print;
  Statement statement;
};
std::string pack(const std::vector<Said>& all) {
  std::string text;
  for (const auto& [print, s] : all)
    text += fmt::format("{} {} {} {} {}", print, static_cast<int>(s.kind),
                        s.fingerprint, s.text.size(), s.text);
  return text;
}
std::vector<Said> unpack(const std::string& text, size_t members) {
  std::istringstream in(text);
  std::vector<Said> all(members);
  for (auto& [print, s] : all) {
    int kind = 0;
    size_t size = 0;
    in >> print >> kind >> s.fingerprint >> size;
    in.get();  // the space
    DT_CHECK(in && size <= text.size(), "communicator",
             "the description of another process's call is truncated");
    s.kind = static_cast<StepKind>(kind);
    s.text.resize(size);
    in.read(s.text.data(), static_cast<std::streamsize>(size));
  }
  return all;
}

}  // namespace

// The bytes that fit into the payload, or -1 if the data is sent separately.
int64_t ProcessCommunicator::payload_for(const Collective& c,
                                         size_t peer) const {
  if (only_agrees_ && c.num_bytes < 0)
    return std::ssize(group_.members) * std::ssize(mine().shows);
  if (!one_each_) return -1;
  int64_t bytes = 0;
  if (c.num_bytes > 0) bytes += padded(c.num_bytes);
  for (const Buffer& b : c.buffers) bytes += padded(bytes_of(b));
  for (const PackedMessages& p : packed_)
    bytes += padded(p.bytes_to(static_cast<int>(peer)));
  return bytes <= kPayload ? bytes : -1;
}

void ProcessCommunicator::put_payload(const Collective& c, size_t peer,
                                      char* to) {
  if (only_agrees_ && c.num_bytes < 0) {
    for (size_t k = 0; k < group_.members.size(); ++k) {
      const std::span<const char> shows = slot(k).shows;
      copy_bytes(to, shows.data(), std::ssize(shows));
      to += std::ssize(shows);
    }
    return;
  }
  if (c.num_bytes > 0) copy_bytes(to, c.bytes, c.num_bytes);
  for (const Buffer& b : c.buffers) {
    copy_bytes(to, source(b, 0), bytes_of(b));
    to += padded(bytes_of(b));
  }
  for (PackedMessages& p : packed_) {
    const void* at = p.message_to(Place{cpu(), {}}, static_cast<int>(peer),
                                  [&](int64_t) { return to; });
    const int64_t bytes = p.bytes_to(static_cast<int>(peer));
    if (at != to) copy_bytes(to, at, bytes);
    to += padded(bytes);
  }
}

// Called by the first member of this process for all of them. The error is
// returned, because no other process waits for it.
std::exception_ptr ProcessCommunicator::settle(const Collective& c) noexcept {
  try {
    exchange_headers(c);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void ProcessCommunicator::exchange_headers(const Collective& c) {
  bool agreed = true;
  for (size_t k = 0; k < group_.members.size(); ++k)
    agreed =
        agreed && (alone() || slot(k).collective->fingerprint == c.fingerprint);
  const uint64_t print = hash_mix(c.fingerprint, group_hash_);
  constexpr int64_t kMost = sizeof(Header) + kPayload;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    const int first = p.members[0];
    const int64_t payload = payload_for(c, i);
    p.sent_payload = payload >= 0;
    const int64_t bytes =
        static_cast<int64_t>(sizeof(Header)) + std::max<int64_t>(payload, 0);
    char* out = static_cast<char*>(staging_.take(bytes));
    new (out)
        Header{print, agreed, std::max<int64_t>(payload, 0), p.sent_payload};
    if (payload > 0) put_payload(c, i, out + sizeof(Header));
    p.message = static_cast<char*>(staging_.take(kMost));
    messages_->receive(from(first), p.message, kMost);
    messages_->send(to(first), out, bytes);
  }
  wait();
  for (const Peer& p : peers_)
    agreed = agreed && p.header().agreed && p.header().print == print;
  if (!agreed) differ(c);
  if (only_agrees_ && c.num_bytes < 0) keep_shown();
}

// Keeps the shown bytes until all members here have come to the next
// collective.
void ProcessCommunicator::keep_shown() {
  const int64_t bytes = std::ssize(mine().shows);
  group_.shown.resize(static_cast<size_t>(size() * bytes));
  for (size_t k = 0; k < group_.members.size(); ++k)
    copy_bytes(group_.shown.data() + group_.members[k] * bytes,
               slot(k).shows.data(), bytes);
  for (const Peer& p : peers_)
    for (size_t k = 0; k < p.members.size(); ++k)
      copy_bytes(group_.shown.data() + p.members[k] * bytes,
                 p.payload() + static_cast<int64_t>(k) * bytes, bytes);
}

// ---- As an agreement channel ----

void ProcessCommunicator::open(const Collective& c, const void* mine_shows,
                               int64_t bytes) {
  come(c);
  staging_.reset();
  only_agrees_ = true;
  mine().shows = {static_cast<const char*>(mine_shows),
                  static_cast<size_t>(bytes)};
  meet(c);
}

const void* ProcessCommunicator::shown(int m) const {
  return group_.shown.data() +
         static_cast<size_t>(m) * (group_.shown.size() / group_.ranks.size());
}

// The processes that disagree describe their members' calls to each other.
void ProcessCommunicator::differ(const Collective& c) {
  const uint64_t print = hash_mix(c.fingerprint, group_hash_);
  std::vector<Said> said(group_.ranks.size(), {c.fingerprint, statement_of(c)});
  std::vector<Said> here;
  bool agreed = true;
  for (int m : group_.members) {
    const Collective& theirs = alone() ? c : *of(m).collective;
    here.push_back({theirs.fingerprint, statement_of(theirs)});
    said[static_cast<size_t>(m)] = here.back();
    agreed = agreed && theirs.fingerprint == c.fingerprint;
  }
  for (Said& s : here)
    s.statement.text +=
        fmt::format(" of ranks {}", ranks_to_string(group_.ranks));
  const std::string out = pack(here);
  std::vector<size_t> odd;
  for (size_t i = 0; i < peers_.size(); ++i)
    if (!agreed || !peers_[i].header().agreed ||
        peers_[i].header().print != print)
      odd.push_back(i);
  const int64_t size = std::ssize(out);
  std::vector<int64_t> sizes(odd.size());
  for (size_t i = 0; i < odd.size(); ++i) {
    messages_->receive(from(peers_[odd[i]].members[0]), &sizes[i],
                       sizeof(size));
    messages_->send(to(peers_[odd[i]].members[0]), &size, sizeof(size));
  }
  wait();
  std::vector<std::string> texts(odd.size());
  for (size_t i = 0; i < odd.size(); ++i) {
    texts[i].resize(static_cast<size_t>(sizes[i]));
    messages_->receive(from(peers_[odd[i]].members[0]), texts[i].data(),
                       sizes[i]);
    messages_->send(to(peers_[odd[i]].members[0]), out.data(), size);
  }
  wait();
  const std::string same_group =
      fmt::format(" of ranks {}", ranks_to_string(group_.ranks));
  for (size_t i = 0; i < odd.size(); ++i) {
    const std::vector<int>& members = peers_[odd[i]].members;
    const std::vector<Said> theirs = unpack(texts[i], members.size());
    for (size_t k = 0; k < members.size(); ++k) {
      Said& s = said[static_cast<size_t>(members[k])];
      s = theirs[k];
      std::string& text = s.statement.text;
      if (text.ends_with(same_group))
        text.resize(text.size() - same_group.size());
      else
        s.print = ~c.fingerprint;  // it is about another group
    }
  }
  for (size_t m = 1; m < said.size(); ++m)
    if (said[m].print != said[0].print)
      disagree(group_.ranks, c.sequence, m, std::move(said[0].statement),
               std::move(said[m].statement));
  fail(name(c.call->kind),
       "ranks {} disagree about a collective of other ranks",
       ranks_to_string(group_.ranks));
}

}  // namespace dtensor
