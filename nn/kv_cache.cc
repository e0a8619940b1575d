#include "dtensor/nn/kv_cache.h"

#include <algorithm>
#include <bit>

#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/paged_attention.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

int64_t rounded(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

DistTensor replicated(const std::vector<int64_t>& values, const Shape& shape,
                      const Mesh& mesh) {
  return DistTensor::from_global(Tensor::from<int64_t>(shape, values.data()),
                                 mesh, Layout::replicated(shape));
}

// The mesh axis that splits the pages of a layer's cache, or -1.
int axis_of_pages(const Attention& a) {
  const int axis = axis_that(kSplitsSequences, a.mesh());
  return axis >= 0 && a.head_split().mask() >> axis & 1 ? -1 : axis;
}

}  // namespace

KvCache::KvCache(const LanguageModel& model, const CacheOptions& options)
    : options_(options), free_(1) {
  const std::vector<const Attention*> layers = model.attention_layers();
  DT_CHECK(!layers.empty(), "cache", "a {} cannot be continued token by token",
           model.config().name);
  DT_CHECK(options.page >= 1 && options.tokens >= 1 && options.texts >= 1 &&
               options.step >= 1,
           "cache",
           "the cache has {} tokens in pages of {} for {} texts, {} tokens of "
           "each in a step; write numbers of at least 1",
           options.tokens, options.page, options.texts, options.step);
  if (!options_.length) options_.length = model.config().seq;
  table_width_ = pages_for(options_.length);
  pages_ = pages_for(options.tokens);
  window_ = layers[0]->config().window;
  for (const Attention* a : layers) {
    const AttentionConfig& c = a->config();
    window_ = c.window ? std::max(window_, c.window) : 0;
    if (!window_) break;
  }
  for (const Attention* a : layers) {
    const AttentionConfig& c = a->config();
    const Mesh& mesh = a->mesh();
    const KvHeads heads =
        kv_heads_of(c.heads, c.kv_heads, a->head_split(), mesh);
    CacheLayer layer;
    layer.page = options.page;
    const auto n = std::ssize(heads.heads);
    const Shape shape{pages_ * options.page, n, c.head_size};
    Layout layout = Layout::replicated(shape);
    layout.dims[1] = heads.dim;
    if (const int axis = axis_of_pages(*a); axis >= 0) {
      layout.dims[0] = Dim(shape[0], Split::over({axis}, options.page));
      free_.resize(static_cast<size_t>(mesh.axis_size(axis)));
    }
    const Spec* spec = Spec::get(mesh, shape, layout, a->dtype());
    for (DistTensor* x : {&layer.k, &layer.v}) {
      *x = DistTensor::empty(spec);
      // Padding reads slot 0.
      if (x->here() && x->local().data()) Tensor(x->local()).fill(0);
    }
    bool each_once = n == c.kv_heads;
    for (int64_t i = 0; i < n; ++i)
      each_once &= heads.heads[static_cast<size_t>(i)] == i;
    if (!each_once) layer.heads = replicated(heads.heads, {n}, mesh);
    layers_.push_back(std::move(layer));
  }
  if (model.tied().defined())
    table_ = onto(layers.back()->mesh(), model.tied());
  for (int64_t p = pages_; p-- > 0;) free_[part_of(p)].push_back(p);
}

int64_t KvCache::free_pages() const {
  int64_t n = 0;
  for (const auto& part : free_) n += std::ssize(part);
  return n;
}

// The part i of n that [floor(i pages / n), floor((i + 1) pages / n)) has.
size_t KvCache::part_of(int64_t page) const {
  return static_cast<size_t>(((page + 1) * std::ssize(free_) - 1) / pages_);
}

KvCache::Text& KvCache::text(int64_t number) {
  const auto found = texts_.find(number);
  DT_CHECK(found != texts_.end(), "cache", "there is no text {}", number);
  return found->second;
}

int64_t KvCache::add(int64_t tokens) {
  DT_CHECK(tokens >= 1 && tokens <= options_.length, "cache",
           "a text of {} tokens does not fit; write 1 to {}", tokens,
           options_.length);
  int64_t pages = pages_for(tokens);
  // With a window, pages behind it are used again.
  if (window_) pages = std::min(pages, pages_for(window_ + options_.step) + 1);
  if (pages > free_pages()) return -1;
  Text fresh;
  fresh.most = tokens;
  for (; std::ssize(fresh.spare) < pages; ++next_part_) {
    std::vector<int64_t>& part = free_[next_part_ % free_.size()];
    if (part.empty()) continue;
    fresh.spare.push_back(part.back());
    part.pop_back();
  }
  std::reverse(fresh.spare.begin(), fresh.spare.end());
  texts_.emplace(next_, std::move(fresh));
  return next_++;
}

void KvCache::remove(int64_t number) {
  const Text& t = text(number);
  for (const auto* pages : {&t.pages, &t.spare})
    for (const int64_t p : *pages)
      if (p >= 0) free_[part_of(p)].push_back(p);
  texts_.erase(number);
}

int64_t KvCache::length(int64_t number) const {
  return const_cast<KvCache*>(this)->text(number).length;
}

int64_t KvCache::append(Text& t) {
  const int64_t at = t.length % options_.page;
  if (at == 0) {
    t.pages.push_back(t.spare.back());
    t.spare.pop_back();
  }
  ++t.length;
  return t.pages.back() * options_.page + at;
}

void KvCache::drop_behind_window(Text& t) {
  if (!window_) return;
  // The next token attends to this position and those after it.
  const int64_t first = t.length + 1 - window_;
  for (int64_t i = first / options_.page - 1; i >= 0; --i) {
    int64_t& page = t.pages[static_cast<size_t>(i)];
    if (page < 0) return;
    t.spare.push_back(page);
    page = -1;
  }
}

CacheStep KvCache::step(std::span<const CacheStep::Part> parts) {
  DT_CHECK(std::ssize(parts) <= options_.texts, "cache",
           "a step has {} texts, but the cache is for {}", parts.size(),
           options_.texts);
  CacheStep s;
  s.texts_ = options_.texts;
  s.pages_.assign(static_cast<size_t>(options_.texts * table_width_), -1);
  int64_t row = 0;
  for (const CacheStep::Part& part : parts) {
    Text& t = text(part.text);
    const auto n = std::ssize(part.tokens);
    DT_CHECK(n >= 1 && n <= options_.step && t.length + n <= t.most, "cache",
             "text {} has {} tokens, and {} more do not fit; at most {} were "
             "reserved, and a step takes 1 to {}",
             part.text, t.length, n, t.most, options_.step);
    drop_behind_window(t);
    for (const int64_t id : part.tokens) {
      s.ids_.push_back(id);
      s.positions_.push_back(t.length);
      s.row_.push_back(row);
      s.slot_.push_back(append(t));
    }
    if (part.wanted) s.want_.push_back(std::ssize(s.ids_) - 1);
    std::copy(t.pages.begin(), t.pages.end(),
              s.pages_.begin() + row * table_width_);
    ++row;
  }
  s.wanted_ = std::ssize(s.want_);
  const auto size = static_cast<size_t>(rounded(std::ssize(s.ids_)));
  s.ids_.resize(size, 0);
  s.positions_.resize(size, -1);
  s.row_.resize(size, -1);
  s.slot_.resize(size, -1);
  s.want_.resize(static_cast<size_t>(rounded(s.wanted_)), 0);
  return s;
}

const CacheTokens& CacheStep::on(const Mesh& mesh) const {
  for (const auto& [m, tokens] : on_)
    if (m == mesh) return tokens;
  const auto t = std::ssize(ids_), n = std::ssize(want_);
  // Padding is at no position, but its embedding is looked up.
  std::vector<int64_t> looked_up = positions_;
  for (int64_t& p : looked_up) p = std::max<int64_t>(p, 0);
  const auto make = [&](const std::vector<int64_t>& values, Shape shape) {
    return replicated(values, shape, mesh);
  };
  return on_
      .emplace_back(
          mesh, CacheTokens{.ids = make(ids_, {1, t}),
                            .positions = make(looked_up, {1, t}),
                            .position = make(positions_, {t}),
                            .row = make(row_, {t}),
                            .slot = make(slot_, {t}),
                            .pages = make(
                                pages_, {texts_, std::ssize(pages_) / texts_}),
                            .wanted = make(want_, {n})})
      .second;
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const CacheLayer& l : layers_)
    for (const DistTensor* x : {&l.k, &l.v})
      if (x->here()) sum += x->local().bytes();
  return sum;
}

}  // namespace dtensor::nn
