// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

namespace dtensor::random_programs {
namespace {

// A number that is nearer to a jump than this is Unfit: the library adds in
// another order, so its result could be on the other side of the jump.
constexpr double kNear = 1e-4;
constexpr int64_t kMostElements = 240;

void fit(bool condition) {
  if (!condition) throw Unfit();
}

struct Dual {
  double v = 0, d = 0;
};
Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
Dual operator-(Dual a, Dual b) { return {a.v - b.v, a.d - b.d}; }
Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
Dual operator/(Dual a, Dual b) {
  fit(std::abs(b.v) > 0.1);
  return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v};
}
Dual exp(Dual x) {
  fit(x.v < 5);
  return {std::exp(x.v), x.d * std::exp(x.v)};
}
Dual log(Dual x) {
  fit(x.v > 1e-3);
  return {std::log(x.v), x.d / x.v};
}
Dual sqrt(Dual x) {
  fit(x.v > 0.02);
  return {std::sqrt(x.v), x.d / 2 / std::sqrt(x.v)};
}
Dual tanh(Dual x) {
  const double y = std::tanh(x.v);
  return {y, x.d * (1 - y * y)};
}
Dual larger(Dual a, Dual b) {
  fit(std::abs(a.v - b.v) > kNear);
  return a.v > b.v ? a : b;
}
Dual gelu(Dual x) {
  const double below = 0.5 * (1 + std::erf(x.v / std::sqrt(2.0)));
  const double bell = std::exp(-x.v * x.v / 2) / std::sqrt(2 * M_PI);
  return {x.v * below, x.d * (below + x.v * bell)};
}

// A tensor of row-major numbers; with `ids`, the numbers are integers.
struct Value {
  Shape shape;
  std::vector<Dual> at;
  bool ids = false;

  // The element at an index. Dimensions are aligned at the right, and those of
  // size 1 are broadcast.
  Dual operator()(const Ints& index) const {
    int64_t flat = 0;
    const size_t skip = index.size() - static_cast<size_t>(shape.size());
    for (int d = 0; d < shape.size(); ++d)
      flat = flat * shape[d] +
             (shape[d] == 1 ? 0 : index[skip + static_cast<size_t>(d)]);
    return at[static_cast<size_t>(flat)];
  }
};
using Values = std::vector<const Value*>;
using Row = std::vector<Dual>;

template <class Fn>  // Fn: Dual(Ints index)
Value make(const Shape& shape, Fn&& fn) {
  fit(std::all_of(shape.begin(), shape.end(), [](auto n) { return n >= 0; }));
  fit(shape.size() <= 5 && numel(shape) <= kMostElements);
  Value out{shape, {}};
  Ints index(static_cast<size_t>(shape.size()), 0);
  for (int64_t left = numel(shape); left > 0; --left) {
    out.at.push_back(fn(index));
    fit(std::abs(out.at.back().v) < 1e3);
    for (size_t d = index.size(); d-- > 0; index[d] = 0)
      if (++index[d] < shape[static_cast<int>(d)]) break;
  }
  return out;
}

int dim_of(const Value& x, int64_t d) {
  fit(d >= 0 && d < x.shape.size());
  return static_cast<int>(d);
}
int64_t& at(Ints& index, int d) { return index[static_cast<size_t>(d)]; }

Shape broadcast(const Values& in) {
  Shape out;
  for (const Value* x : in)
    while (out.size() < x->shape.size()) out.insert(0, 1);
  for (const Value* x : in)
    for (int d = 1; d <= x->shape.size(); ++d) {
      const int64_t n = x->shape[x->shape.size() - d];
      int64_t& m = out[out.size() - d];
      fit(m == n || m == 1 || n == 1);
      if (m == 1) m = n;
    }
  return out;
}

Dual total(const Row& r) {
  Dual s;
  for (Dual x : r) s = s + x;
  return s;
}
Dual mean(const Row& r) {
  fit(!r.empty());
  return total(r) / Dual{static_cast<double>(r.size())};
}
Dual largest(const Row& r) {
  fit(!r.empty());
  Dual best = r[0];
  for (size_t i = 1; i < r.size(); ++i) best = larger(best, r[i]);
  return best;
}
Row negated(Row r) {
  for (Dual& x : r) x = Dual{} - x;
  return r;
}
Dual log_sum(Row r) {
  fit(!r.empty());
  for (Dual& x : r) x = exp(x);
  return log(total(r));
}
Row centred(Row r) {
  const Dual m = mean(r);
  for (Dual& x : r) x = x - m;
  return r;
}
Dual squares(Row r) {
  for (Dual& x : r) x = x * x;
  return total(r);
}

const std::map<std::string, Dual (*)(Dual), std::less<>> kUnary = {
    {"neg", [](Dual x) { return Dual{} - x; }},
    {"neg_given", [](Dual x) { return Dual{} - x; }},
    {"neg_elsewhere", [](Dual x) { return Dual{} - x; }},
    {"relu", [](Dual x) { return larger(x, {}); }},
    {"square", [](Dual x) { return x * x; }},
    {"exp", exp},
    {"sqrt", sqrt},
    {"tanh", tanh},
    {"gelu", gelu},
    {"sigmoid", [](Dual x) { return Dual{1} / (Dual{1} + exp(Dual{} - x)); }},
};
const std::map<std::string, Dual (*)(Dual, Dual), std::less<>> kBinary = {
    {"add", [](Dual a, Dual b) { return a + b; }},
    {"sub", [](Dual a, Dual b) { return a - b; }},
    {"mul", [](Dual a, Dual b) { return a * b; }},
    {"div", [](Dual a, Dual b) { return a / b; }},
    {"maximum", larger},
    {"hypot", [](Dual a, Dual b) { return sqrt(a * a + b * b); }},
};
// Reductions of all elements along the given dimensions, by name.
const std::map<std::string, Dual (*)(const Row&), std::less<>> kReduce = {
    {"sum", total},
    {"mean", mean},
    {"amax", largest},
    {"amin", [](const Row& r) { return Dual{} - largest(negated(r)); }},
    {"logsumexp", [](const Row& r) { return log_sum(r); }},
    {"var",
     [](const Row& r) {
       fit(r.size() > 1);
       return squares(centred(r)) / Dual{static_cast<double>(r.size() - 1)};
     }},
};
// Functions of the elements along one dimension, by name.
const std::map<std::string, Row (*)(Row, const Ints&), std::less<>> kRows = {
    {"softmax",
     [](Row r, const Ints&) {
       const Dual s = log_sum(r);
       for (Dual& x : r) x = exp(x - s);
       return r;
     }},
    {"log_softmax",
     [](Row r, const Ints&) {
       const Dual s = log_sum(r);
       for (Dual& x : r) x = x - s;
       return r;
     }},
    {"cumsum",
     [](Row r, const Ints&) {
       for (size_t i = 1; i < r.size(); ++i) r[i] = r[i] + r[i - 1];
       return r;
     }},
    {"topk",  // dim, k
     [](Row r, const Ints& a) {
       fit(a[1] <= static_cast<int64_t>(r.size()));
       std::sort(r.begin(), r.end(), [](Dual x, Dual y) { return x.v > y.v; });
       for (size_t i = 1; i < r.size(); ++i) larger(r[i - 1], r[i]);
       r.resize(static_cast<size_t>(a[1]));
       return r;
     }},
    {"rms_norm",
     [](Row r, const Ints&) {
       const Dual n{static_cast<double>(r.size())};
       const Dual root = sqrt(squares(r) / n + Dual{1e-6});
       for (Dual& x : r) x = x / root;
       return r;
     }},
    {"layer_norm",
     [](Row r, const Ints&) {
       r = centred(r);
       const Dual n{static_cast<double>(r.size())};
       const Dual root = sqrt(squares(r) / n + Dual{1e-5});
       for (Dual& x : r) x = x / root;
       return r;
     }},
};

Value reduce(const Value& x, const Ints& a, Dual (*fn)(const Row&)) {
  Shape kept = x.shape, inner = Shape::filled(x.shape.size(), 1), shape;
  for (int d = 0; d < x.shape.size(); ++d)
    if (a.size() == 1 || std::find(a.begin() + 1, a.end(), d) != a.end())
      std::swap(kept[d], inner[d]);
    else
      shape.push_back(x.shape[d]);
  for (size_t i = 1; i < a.size(); ++i) dim_of(x, a[i]);
  // Like torch, the library refuses the maximum over an empty dimension, even
  // if the result has no elements.
  fit(fn == total || numel(inner) > 0);
  Value out = make(kept, [&](const Ints& i) {
    Row all;
    make(inner, [&](Ints j) {
      for (size_t d = 0; d < j.size(); ++d) j[d] += i[d];
      return all.emplace_back(x(j));
    });
    return fn(all);
  });
  if (!a[0]) out.shape = shape;
  return out;
}

Value rows(const Value& x, int64_t dim, const Ints& a,
           Row (*fn)(Row, const Ints&)) {
  const int d = dim_of(x, dim);
  auto row = [&](Ints i) {
    Row r;
    for (at(i, d) = 0; at(i, d) < x.shape[d]; ++at(i, d)) r.push_back(x(i));
    return fn(r, a);
  };
  Shape shape = x.shape;
  fit(numel(shape) > 0);
  shape[d] = static_cast<int64_t>(
      row(Ints(static_cast<size_t>(shape.size()), 0)).size());
  return make(shape, [&](Ints i) { return row(i)[size_t(at(i, d))]; });
}

Value matmul(Value a, Value b) {
  const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
  if (row) a.shape.insert(0, 1);
  if (column) b.shape.push_back(1);
  const int m = a.shape.size(), n = b.shape.size();
  fit(m > 1 && n > 1 && a.shape[m - 1] == b.shape[n - 2]);
  Value rest_a{a.shape, {}}, rest_b{b.shape, {}};
  rest_a.shape[m - 1] = rest_b.shape[n - 2] = 1;
  const Shape shape = broadcast({&rest_a, &rest_b});
  Value out = make(shape, [&](const Ints& i) {
    Ints x = i, y = i;
    Dual sum;
    for (int64_t& k = x[i.size() - 1] = 0; k < a.shape[m - 1]; ++k) {
      y[i.size() - 2] = k;
      sum = sum + a(x) * b(y);
    }
    return sum;
  });
  if (row) out.shape.erase(shape.size() - 2);
  if (column) out.shape.pop_back();
  return out;
}

// Shapes: q is [b, s, h, d]; k and v are [b, t, g, d], where g divides h.
Value attention(const Value& q, const Value& k, const Value& v, bool causal,
                int64_t window, int64_t soft_cap) {
  fit(q.shape.size() == 4 && k.shape.size() == 4 && v.shape == k.shape);
  const int64_t keys = k.shape[1], size = q.shape[3];
  fit(q.shape[0] == k.shape[0] && size == k.shape[3] && size > 0 && keys > 0);
  fit(k.shape[2] > 0 && q.shape[2] % k.shape[2] == 0);
  fit(!causal || keys == q.shape[1]);
  fit(window == 0 || causal);
  const Dual root{std::sqrt(static_cast<double>(size))};
  const Dual cap{static_cast<double>(soft_cap)};
  return make(q.shape, [&](Ints i) {
    const Ints at = i;
    const int64_t head = i[2] * k.shape[2] / q.shape[2];
    Row row;
    Dual sum;
    const int64_t first = window ? std::max<int64_t>(at[1] + 1 - window, 0) : 0;
    for (int64_t t = first; t < (causal ? at[1] + 1 : keys); ++t) {
      Dual score;
      for (i[3] = 0; i[3] < size; ++i[3])
        score = score + q(i) * k({at[0], t, head, i[3]});
      score = score / root;
      if (soft_cap) score = cap * tanh(score / cap);
      row.push_back(exp(score));
      sum = sum + row.back();
    }
    Dual out;
    for (size_t t = 0; t < row.size(); ++t)
      out = out + row[t] / sum *
                      v({at[0], first + static_cast<int64_t>(t), head, at[3]});
    return out;
  });
}

// Makes a tensor whose element i is the element of x at the index from(i). If
// from(i) returns false, the element is `outside`.
template <class From>  // From: bool(Ints& index)
Value moved(const Value& x, const Shape& shape, From&& from,
            double outside = 0) {
  return make(shape, [&](Ints i) { return from(i) ? x(i) : Dual{outside}; });
}

Value computed(const std::string& op, const Values& in, const Ints& a) {
  const Value& x = *in[0];
  Shape s = x.shape;
  const bool takes_ids = op == "embedding" || op == "cross_entropy";
  for (const Value* v : in) fit(v->ids == (takes_ids && v != &x));
  if (auto f = kUnary.find(op); f != kUnary.end())
    return make(s, [&](const Ints& i) { return f->second(x(i)); });
  if (auto f = kBinary.find(op); f != kBinary.end())
    return make(broadcast(in),
                [&](const Ints& i) { return f->second(x(i), (*in[1])(i)); });
  if (auto f = kReduce.find(op); f != kReduce.end())
    return reduce(x, a, f->second);
  if (op == "layer_norm" || op == "rms_norm") {
    const size_t given = op == "rms_norm" ? 2 : 3;
    fit(in.size() == given);
    const Value y = rows(x, s.size() - 1, a, kRows.at(op));
    for (size_t k = 1; k < given; ++k) fit(in[k]->shape == Shape{s.back()});
    return make(s, [&](const Ints& i) {
      return y(i) * (*in[1])(i) + (given > 2 ? (*in[2])(i) : Dual{});
    });
  }
  if (op == "linear") {  // weight [out, in], bias [out]
    fit(in.size() == 3 && in[1]->shape.size() == 2 && !s.empty());
    const Value& w = *in[1];
    fit(w.shape[1] == s.back() && in[2]->shape == Shape{w.shape[0]});
    s.back() = w.shape[0];
    return make(s, [&](const Ints& i) {
      Dual sum = (*in[2])(i);
      Ints from = i;
      for (int64_t& k = from.back() = 0; k < w.shape[1]; ++k)
        sum = sum + x(from) * w({i.back(), k});
      return sum;
    });
  }
  if (op == "cross_entropy") {
    fit(in.size() == 2 && s.size() == 2 && in[1]->shape == Shape{s[0]});
    const Value y = rows(x, 1, a, kRows.at("log_softmax"));
    Row picked;
    for (int64_t n = 0; n < s[0]; ++n) {
      const auto target = static_cast<int64_t>((*in[1])({n}).v);
      fit(target < s[1]);
      picked.push_back(Dual{} - y({n, target}));
    }
    return make({}, [&](const Ints&) { return mean(picked); });
  }
  if (op == "attention" && in.size() == 3)
    return attention(x, *in[1], *in[2], a[0] != 0, a[1], a[2]);
  if (auto f = kRows.find(op); f != kRows.end())
    return rows(x, a.empty() ? -1 : a[0], a, f->second);
  if (op == "where_positive")
    return make(broadcast(in), [&](const Ints& i) {
      fit(std::abs(x(i).v) > kNear);
      return (*in[x(i).v > 0 ? 1 : 2])(i);
    });
  if (op == "matmul" && in.size() > 1) return matmul(x, *in[1]);
  if (op.starts_with("redistribute")) return x;
  if (op == "reshape") {
    const Shape to{std::span(a)};
    fit(numel(to) == numel(s));
    return {to, x.at};
  }
  if (op == "expand") {
    const Value to{Shape(std::span(a)), {}};
    fit(broadcast({&x, &to}) == to.shape);
    return moved(x, to.shape, [](Ints&) { return true; });
  }
  if (op == "permute") {
    fit(static_cast<int>(a.size()) == s.size());
    for (int d = 0; d < s.size(); ++d)
      s[d] = x.shape[static_cast<int>(a[static_cast<size_t>(d)])];
    return moved(x, s, [&](Ints& i) {
      const Ints was = i;
      for (size_t d = 0; d < was.size(); ++d) i[size_t(a[d])] = was[d];
      return true;
    });
  }
  if (op == "embedding") {
    fit(s.size() == 2 && in.size() > 1);
    Shape to = in[1]->shape;
    to.push_back(s[1]);
    return moved(x, to, [&](Ints& i) {
      const int64_t column = i.back();
      i.pop_back();
      const auto id = static_cast<int64_t>((*in[1])(i).v);
      fit(id < s[0]);
      i = {id, column};
      return true;
    });
  }
  fit(!a.empty());
  const int d = dim_of(x, a[0]);
  if (op == "slice") {  // dim, lo, hi, step
    fit(a[1] <= a[2] && a[2] <= s[d]);
    s[d] = (a[2] - a[1] + a[3] - 1) / a[3];
    return moved(x, s, [&](Ints& i) {
      at(i, d) = a[1] + a[3] * at(i, d);
      return true;
    });
  }
  if (op == "pad") {  // dim, left, right, value
    fit(std::min<int64_t>(a[1], 0) + std::min<int64_t>(a[2], 0) >= -s[d]);
    s[d] += a[1] + a[2];
    return moved(
        x, s,
        [&](Ints& i) {
          at(i, d) -= a[1];
          return at(i, d) >= 0 && at(i, d) < x.shape[d];
        },
        static_cast<double>(a[3]));
  }
  fit(op == "cat");
  for (size_t k = 1; k < in.size(); ++k) {
    Shape other = in[k]->shape;
    fit(other.size() == s.size());
    s[d] += other[d];
    other[d] = s[d];
    fit(other == s);
  }
  return make(s, [&](Ints i) {
    size_t k = 0;
    for (; at(i, d) >= in[k]->shape[d]; ++k) at(i, d) -= in[k]->shape[d];
    return (*in[k])(i);
  });
}

Value from_array(const testing::Array& a) {
  Value x{a.shape, {}, !is_float(a.dtype)};
  for (double v : a.v) x.at.push_back({v});
  return x;
}
testing::Array to_array(const Value& x) {
  testing::Array a{x.shape, {}, x.ids ? DType::kI64 : DType::kF64};
  for (Dual e : x.at) a.v.push_back(e.v);
  return a;
}

Value next(const Step& step, const std::vector<Value>& values) {
  if (step.op == "leaf") return from_array(step.value);
  Values in;
  for (size_t i : step.in) in.push_back(&values[i]);
  return computed(step.op, in, step.args);
}

// All values, with their derivatives by element `e` of leaf `leaf`. The values
// of operator `wrong` are made wrong.
std::vector<Value> along(const Program& p, size_t leaf, size_t e,
                         std::string_view wrong) {
  std::vector<Value> values;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    values.push_back(next(p.steps[i], values));
    if (i == leaf) values[i].at[e].d = 1;
    if (p.steps[i].op == wrong)
      for (Dual& x : values[i].at) x = x * Dual{1.0001};
  }
  return values;
}

}  // namespace

testing::Array value_of(const Step& step,
                        const std::vector<testing::Array>& values) {
  std::vector<Value> all;
  for (const auto& a : values) all.push_back(from_array(a));
  return to_array(next(step, all));
}

Expected reference(const Program& p, std::string_view wrong) {
  Expected out;
  for (const Value& v : along(p, p.steps.size(), 0, wrong))
    out.values.push_back(to_array(v));
  const std::vector<bool> used = p.used();
  for (size_t leaf = 0; leaf < p.steps.size(); ++leaf) {
    if (!p.steps[leaf].wants_grad) continue;
    testing::Array g{p.steps[leaf].value.shape, {}};
    for (size_t e = 0; e < p.steps[leaf].value.v.size(); ++e) {
      double slope = 0;
      const std::vector<Value> values = along(p, leaf, e, wrong);
      for (size_t i = 0; i < values.size(); ++i)
        if (!used[i] && p.steps[i].op != "leaf")
          for (size_t k = 0; k < values[i].at.size(); ++k)
            slope += values[i].at[k].d * std::cos(static_cast<double>(k) + 1);
      fit(std::abs(slope) < 1e4);
      out.differentiable |= slope != 0;
      g.v.push_back(slope);
    }
    out.gradients.push_back(g);
  }
  return out;
}

}  // namespace dtensor::random_programs
