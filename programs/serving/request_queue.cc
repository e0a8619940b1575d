// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/request_queue.h"

#include <chrono>

#include "dtensor/placement/error.h"

namespace dtensor::examples {
namespace {

std::chrono::duration<double> of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

Ticket::~Ticket() { queue_.drop(*this); }

std::optional<TextEvent> Ticket::next() {
  std::unique_lock lock(queue_.mutex_);
  changed_.wait_for(lock, of(0.05), [&] {
    return !events_.empty() || !queue_.failure_.empty();
  });
  if (!events_.empty()) {
    TextEvent e = std::move(events_.front());
    events_.pop_front();
    return e;
  }
  if (!queue_.failure_.empty()) throw Error(queue_.failure_);
  return {};
}

void Ticket::cancel(size_t text) {
  const std::lock_guard lock(queue_.mutex_);
  queue_.cancel_locked(*this, text, queue_.counts_.stopped);
}

std::shared_ptr<Ticket> RequestQueue::submit(
    std::vector<nn::TextRequest> texts) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
  DT_CHECK(engine_, "serve", "the model is not loaded yet; ask again later");
  DT_CHECK(!drains_, "serve", "the server is about to end; ask again later");
  for (const nn::TextRequest& t : texts) engine_->check(t);
  if (active_ + std::ssize(texts) > most_) {
    counts_.refused += std::ssize(texts);
    return nullptr;
  }
  auto ticket = std::make_shared<Ticket>(*this, texts.size());
  ticket->first_ = next_;
  for (nn::TextRequest& t : texts) {
    counts_.prompt_tokens += std::ssize(t.prompt);
    owners_[next_] = {
        .owner = ticket.get(),
        .status = {
            .number = next_, .prompt = std::ssize(t.prompt), .most = t.tokens}};
    work_to_do_.added.emplace_back(next_++, std::move(t));
  }
  counts_.requests += std::ssize(texts);
  active_ += std::ssize(texts);
  ++tickets_;
  work_.notify_all();
  return ticket;
}

std::string RequestQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int64_t RequestQueue::longest() const {
  const std::lock_guard lock(mutex_);
  return engine_ ? engine_->longest() : 0;
}

ServingCounts RequestQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void RequestQueue::end() {
  const std::lock_guard lock(mutex_);
  work_to_do_.end = true;
  work_.notify_all();
}

void RequestQueue::drain() {
  const std::lock_guard lock(mutex_);
  drains_ = true;
}

bool RequestQueue::drains() const {
  const std::lock_guard lock(mutex_);
  return drains_;
}

bool RequestQueue::is_empty() const {
  const std::lock_guard lock(mutex_);
  return active_ == 0 && tickets_ == 0;
}

void RequestQueue::wait_for_clients(double seconds) {
  std::unique_lock lock(mutex_);
  no_tickets_.wait_for(lock, of(seconds), [&] { return tickets_ == 0; });
}

// The engine admits texts by their numbers, which ascend in owners_, so the
// first `running` texts were those that ran in the last step.
std::vector<TextStatus> RequestQueue::texts() const {
  const std::lock_guard lock(mutex_);
  std::vector<TextStatus> all;
  for (const auto& [number, text] : owners_) {
    TextStatus& s = all.emplace_back(text.status);
    s.seconds = since(text.begin);
    s.runs = std::ssize(all) <= counts_.running;
  }
  return all;
}

std::vector<RankStatus> RequestQueue::ranks() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankStatus> all;
  for (const auto& [numbers, at] : ranks_)
    all.push_back({.numbers = numbers, .heard = since(at)});
  return all;
}

bool RequestQueue::cancel(int64_t number) {
  const std::lock_guard lock(mutex_);
  if (!owners_.contains(number)) return false;
  push_locked(number, {.finish = nn::Finish::kCallback});
  ++counts_.cancelled;
  work_to_do_.cancelled.push_back(number);
  work_.notify_all();
  return true;
}

void RequestQueue::open(const nn::Engine& engine) {
  const std::lock_guard lock(mutex_);
  engine_ = &engine;
  counts_.pages = counts_.free_pages = engine.cache().free_pages();
}

void RequestQueue::close() {
  const std::lock_guard lock(mutex_);
  engine_ = nullptr;
}

Work RequestQueue::take(double seconds) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, of(seconds), [&] { return !work_to_do_.empty(); });
  return std::exchange(work_to_do_, {});
}

void RequestQueue::token(int64_t number, const nn::DrawnToken& token,
                         int64_t cached) {
  const std::lock_guard lock(mutex_);
  ++counts_.generated_tokens;
  if (const auto o = owners_.find(number); o != owners_.end())
    ++o->second.status.generated;
  push_locked(number, {.token = token, .cached = cached});
}

void RequestQueue::prompt_token(int64_t number, const nn::DrawnToken& token) {
  const std::lock_guard lock(mutex_);
  push_locked(number, {.token = token, .of_prompt = true});
}

void RequestQueue::finished(int64_t number, nn::Finish why) {
  const std::lock_guard lock(mutex_);
  --active_;
  if (!owners_.contains(number)) return;  // cancelled, and counted as such
  counts_.stopped += why == nn::Finish::kStopToken;
  counts_.full_length += why == nn::Finish::kLength;
  push_locked(number, {.finish = why});
}

void RequestQueue::stepped(const nn::Engine& engine, bool did_something) {
  const std::lock_guard lock(mutex_);
  counts_.steps += did_something;
  counts_.cached_tokens = engine.cached_tokens();
  counts_.running = engine.running();
  counts_.waiting = engine.waiting();
  counts_.free_pages = engine.cache().free_pages();
}

void RequestQueue::heard(size_t rank, const RankNumbers& numbers) {
  const std::lock_guard lock(mutex_);
  if (ranks_.size() <= rank) ranks_.resize(rank + 1);
  ranks_[rank] = {numbers, Clock::now()};
}

void RequestQueue::fail(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = sentence;
  for (const auto& [number, text] : owners_) text.owner->changed_.notify_all();
}

void RequestQueue::drop(Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ticket.ended_.size(); ++i)
    cancel_locked(ticket, i, counts_.cancelled);
  --tickets_;
  no_tickets_.notify_all();
}

void RequestQueue::cancel_locked(Ticket& ticket, size_t text, int64_t& count) {
  if (ticket.ended_[text]) return;
  ticket.ended_[text] = true;
  const int64_t number = ticket.first_ + static_cast<int64_t>(text);
  owners_.erase(number);
  ++count;
  work_to_do_.cancelled.push_back(number);
  work_.notify_all();
}

void RequestQueue::push_locked(int64_t number, TextEvent event) {
  const auto owner = owners_.find(number);
  if (owner == owners_.end()) return;
  Ticket& ticket = *owner->second.owner;
  event.text = static_cast<size_t>(number - ticket.first_);
  if (event.finish) {
    ticket.ended_[event.text] = true;
    owners_.erase(owner);
  }
  ticket.events_.push_back(std::move(event));
  ticket.changed_.notify_all();
}

}  // namespace dtensor::examples
