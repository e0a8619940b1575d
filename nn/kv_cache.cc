// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/kv_cache.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/paged_attention.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

// Rows of padding cost time in products, but deciding layouts for another
// number of rows costs time, too. So numbers above 32 are rounded up, to one of
// four numbers for each doubling.
int64_t rounded(int64_t n) {
  if (n <= 32) return n;
  const auto step =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) / 8;
  return (n + step - 1) / step * step;
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
    : options_(options) {
  const std::vector<const Attention*> layers = model.attention_layers();
  DT_CHECK(!layers.empty(), "cache",
           "the model \"{}\" cannot be continued token by token; call "
           "features() on whole texts, or use a decoder that make_model() "
           "makes, such as a gpt",
           model.config().name);
  DT_CHECK(options.page >= 1 && options.tokens >= 1 && options.texts >= 1 &&
               options.step >= 1,
           "cache",
           "tokens is {}, page {}, texts {} and step {}; write 1 or more for "
           "each",
           options.tokens, options.page, options.texts, options.step);
  if (!options_.length) options_.length = model.config().seq;
  table_width_ = pages_for(options_.length);
  for (const Attention* a : layers) {
    const AttentionConfig& c = a->config();
    const Mesh& mesh = a->mesh();
    Split split = a->head_split();
    int axis = axis_of_pages(*a);
    if (axis >= 0 && RankContext::current().reproducible) {
      // What the ranks find in their pages would be added in an order that
      // depends on the mesh. So each has some of the heads instead.
      std::vector<int> axes = split.axes();
      axes.push_back(std::exchange(axis, -1));
      split = Split::over(axes);
    }
    const KvHeads heads = kv_heads_of(c.heads, c.kv_heads, split, mesh);
    CacheLayer layer;
    layer.page = options.page;
    layer.kind = kind_of(c.window, axis < 0 ? 1 : mesh.axis_size(axis));
    const int64_t pages = kinds_[layer.kind].pool.size();
    const auto n = std::ssize(heads.heads);
    const Shape shape{pages * options.page, n, c.head_size};
    Layout layout = Layout::replicated(shape);
    layout.dims[1] = heads.dim;
    if (axis >= 0)
      layout.dims[0] = Dim(shape[0], Split::over({axis}, options.page));
    const Spec* spec = Spec::get(mesh, shape, layout, a->dtype());
    for (DistTensor* x : {&layer.k, &layer.v}) {
      *x = DistTensor::empty(spec);
      // Slots to which no token has been written hold zeros.
      if (x->here() && x->local().data()) x->local().fill(0);
    }
    bool each_once = n == c.kv_heads;
    for (int64_t i = 0; i < n; ++i)
      each_once &= heads.heads[static_cast<size_t>(i)] == i;
    if (!each_once) layer.heads = replicated(heads.heads, {n}, mesh);
    layers_.push_back(std::move(layer));
  }
  if (model.tied().defined())
    table_ = onto(layers.back()->mesh(), model.tied());
}

size_t KvCache::kind_of(int64_t window, int64_t ranks) {
  for (size_t i = 0; i < kinds_.size(); ++i)
    if (kinds_[i].window == window) return i;
  Kind& kind = kinds_.emplace_back(Kind{window, {}});
  int64_t pages = pages_for(options_.tokens);
  // Texts never read behind their windows, so the pool needs only the pages
  // that `texts` texts can have at one time. The price: a beginning that is
  // longer than the pool soon loses its pages here. Then it cannot be shared in
  // the layers of other kinds, either.
  if (window)
    pages = std::min(pages, options_.texts * most_pages(kind, options_.length));
  kind.pool = PagePool(pages, ranks);
  return kinds_.size() - 1;
}

// With a window, step() first releases the pages behind it. So a text has at
// most the pages for the tokens of the window and of one step, and one more
// because these tokens need not begin where a page begins.
int64_t KvCache::most_pages(const Kind& kind, int64_t tokens) const {
  const int64_t all = pages_for(tokens);
  if (!kind.window) return all;
  return std::min(all, pages_for(kind.window + options_.step) + 1);
}

// Without a window, a text keeps the pages that it has, so it reserves only
// those that it lacks, and a page that several texts share counts once. With a
// window, a text that leaves a shared page behind needs another page, while
// other texts still use the shared one. So every text reserves the most pages
// that it can have at one time.
int64_t KvCache::free_pages() const {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const auto& [window, pool] = kinds_[i];
    int64_t free = window ? pool.size() : pool.free();
    for (const auto& [number, t] : texts_)
      free -= most_pages(kinds_[i], t.most) -
              (window ? 0 : std::ssize(t.of[i].pages));
    fewest = std::min(fewest, free);
  }
  return fewest;
}

std::vector<std::vector<PagePool::Beginning>> KvCache::known(
    std::span<const int64_t> prompt) const {
  std::vector<std::vector<PagePool::Beginning>> all;
  const auto page = static_cast<size_t>(options_.page);
  size_t pages = prompt.size();
  for (const Kind& kind : kinds_) {
    auto& list = all.emplace_back();
    int64_t before = root_;
    // Never the whole prompt: its last token is computed again, for the logits
    // after it.
    for (size_t at = 0; at + page < prompt.size(); at += page) {
      const auto tokens = prompt.subspan(at, page);
      const auto* found =
          kind.pool.find(before, {tokens.begin(), tokens.end()});
      if (!found) break;
      before = list.emplace_back(*found).number;
    }
    pages = std::min(pages, list.size());
  }
  for (auto& list : all) list.resize(pages);
  return all;
}

int64_t KvCache::shared(std::span<const int64_t> prompt) const {
  return std::ssize(known(prompt)[0]) * options_.page;
}

KvCache::Text& KvCache::text(int64_t number) {
  const auto found = texts_.find(number);
  DT_CHECK(found != texts_.end(), "cache",
           "there is no text {}; pass a number of at least 0 that add() "
           "returned and that was not removed",
           number);
  return found->second;
}

int64_t KvCache::add(int64_t tokens, std::span<const int64_t> prompt) {
  DT_CHECK(tokens >= 1 && tokens <= options_.length, "cache",
           "a text cannot have {} tokens; write 1 to {}", tokens,
           options_.length);
  DT_CHECK(std::ssize(prompt) <= tokens, "cache",
           "a text of at most {} cannot begin with a prompt of {}; reserve at "
           "least {}",
           quantity(tokens, "token", "tokens"), prompt.size(), prompt.size());
  Text& t = texts_[next_];
  t.most = tokens;
  t.of.assign(kinds_.size(), Held{.pages = {}, .beginning = root_});
  const auto beginnings = known(prompt);
  for (size_t i = 0; i < kinds_.size(); ++i)
    for (const PagePool::Beginning& b : beginnings[i]) {
      kinds_[i].pool.use(b.page);
      t.of[i].pages.push_back(b.page);
      t.of[i].beginning = b.number;
    }
  t.length = std::ssize(beginnings[0]) * options_.page;
  drop_behind_window(t);
  if (free_pages() >= 0) return next_++;
  remove(next_);
  return -1;
}

void KvCache::parameters_changed(const LanguageModel& model) {
  if (table_.defined()) table_ = onto(table_.mesh(), model.tied());
  --root_;
}

void KvCache::remove(int64_t number) {
  const Text& t = text(number);
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const std::vector<int64_t>& pages = t.of[i].pages;
    // The last page first, so that take() reuses it first: a page can only be
    // found through those before it.
    for (auto p = pages.rbegin(); p != pages.rend(); ++p)
      if (*p >= 0) kinds_[i].pool.release(*p);
  }
  texts_.erase(number);
}

int64_t KvCache::length(int64_t number) const {
  return const_cast<KvCache*>(this)->text(number).length;
}

void KvCache::append(Text& t, int64_t token, CacheStep& step) {
  const int64_t at = t.length++ % options_.page;
  if (options_.share) t.last.push_back(token);
  for (size_t i = 0; i < kinds_.size(); ++i) {
    PagePool& pool = kinds_[i].pool;
    auto& [pages, beginning] = t.of[i];
    if (at == 0) pages.push_back(pool.take(pages.empty() ? -1 : pages.back()));
    if (std::ssize(t.last) == options_.page)
      beginning = pool.keep(pages.back(), beginning, t.last).number;
    step.places_[i].slot.push_back(pages.back() * options_.page + at);
  }
  if (std::ssize(t.last) == options_.page) t.last.clear();
}

void KvCache::drop_behind_window(Text& t) {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    auto& [window, pool] = kinds_[k];
    if (!window) continue;
    // The position of the first token that the next token attends to.
    const int64_t first = t.length + 1 - window;
    for (int64_t i = first / options_.page - 1; i >= 0; --i) {
      int64_t& page = t.of[k].pages[static_cast<size_t>(i)];
      if (page < 0) break;
      pool.release(page);
      page = -1;
    }
  }
}

CacheStep KvCache::step(std::span<const CacheStep::Part> parts) {
  DT_CHECK(std::ssize(parts) <= options_.texts, "cache",
           "a step has {} parts, but CacheOptions::texts is {}; pass at most "
           "that many parts",
           parts.size(), options_.texts);
  CacheStep s;
  s.texts_ = options_.texts;
  s.places_.resize(kinds_.size());
  for (auto& of : s.places_)
    of.pages.assign(static_cast<size_t>(options_.texts * table_width_), -1);
  int64_t row = 0;
  std::vector<int64_t> scored;
  for (const CacheStep::Part& part : parts) {
    Text& t = text(part.text);
    const auto n = std::ssize(part.tokens);
    DT_CHECK(
        n >= 1 && n <= options_.step && t.length + n <= t.most, "cache",
        "text {} has {} of the length {} that add() reserved, and a step gives "
        "it {} more; pass at least 1 token, at most {}, and no more than the "
        "text has left",
        part.text, t.length, t.most, n, options_.step);
    drop_behind_window(t);
    for (const int64_t id : part.tokens) {
      s.ids_.push_back(id);
      s.positions_.push_back(t.length);
      s.row_.push_back(row);
      append(t, id, s);
      if (part.scored) scored.push_back(std::ssize(s.ids_) - 1);
    }
    if (part.wanted) s.want_.push_back(std::ssize(s.ids_) - 1);
    for (size_t i = 0; i < kinds_.size(); ++i)
      std::copy(t.of[i].pages.begin(), t.of[i].pages.end(),
                s.places_[i].pages.begin() + row * table_width_);
    ++row;
  }
  s.want_.insert(s.want_.end(), scored.begin(), scored.end());
  s.wanted_ = std::ssize(s.want_);
  const auto size = static_cast<size_t>(rounded(std::ssize(s.ids_)));
  s.ids_.resize(size, 0);
  s.positions_.resize(size, -1);
  s.row_.resize(size, -1);
  for (auto& of : s.places_) of.slot.resize(size, -1);
  s.want_.resize(static_cast<size_t>(rounded(s.wanted_)), 0);
  return s;
}

const CacheTokens& CacheStep::on(const Mesh& mesh) const {
  for (const auto& [m, tokens] : on_)
    if (m == mesh) return tokens;
  const auto t = std::ssize(ids_), n = std::ssize(want_);
  // Padding has position -1, but an embedding is looked up for it, too: use 0.
  std::vector<int64_t> looked_up = positions_;
  for (int64_t& p : looked_up) p = std::max<int64_t>(p, 0);
  const auto make = [&](const std::vector<int64_t>& values, Shape shape) {
    return replicated(values, shape, mesh);
  };
  CacheTokens made{.ids = make(ids_, {1, t}),
                   .positions = make(looked_up, {1, t}),
                   .position = make(positions_, {t}),
                   .row = make(row_, {t}),
                   .wanted = make(want_, {n}),
                   .places = {}};
  for (const auto& [slot, pages] : places_)
    made.places.push_back(
        {make(slot, {t}), make(pages, {texts_, std::ssize(pages) / texts_})});
  return on_.emplace_back(mesh, std::move(made)).second;
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const CacheLayer& l : layers_)
    for (const DistTensor* x : {&l.k, &l.v})
      if (x->here()) sum += x->local().bytes();
  return sum;
}

}  // namespace dtensor::nn
