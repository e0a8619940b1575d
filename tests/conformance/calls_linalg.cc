// SPDX-License-Identifier: Apache-2.0
// The calls of factorisations, functions and norms of matrices.
#include "dtensor/ops/linalg.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

T qr_call(A a) {
  if (a.text(1, "mode", "reduced") != "reduced")
    throw NotHere("only the reduced factors");
  const Qr f = qr(a.tensor(0));
  return {f.q, f.r};
}

T norm_call(A a) {
  const DistTensor x = a.tensor(0);
  const auto dims = a.dims(2, "dim");
  const bool keepdim = a.flag(3, "keepdim", false);
  if (!a.has(1, "ord"))
    return {dims.size() == 2 ? matrix_norm(x, "fro", dims, keepdim)
                             : vector_norm(x, 2, dims, keepdim)};
  if (!a.is_text(1, "ord")) return {norm(x, a.number(1, "ord"), dims, keepdim)};
  return {matrix_norm(x, a.text(1, "ord", ""),
                      dims.empty() ? std::vector<int>{0, 1} : dims, keepdim)};
}

T matrix_norm_call(A a) {
  const DistTensor x = a.tensor(0);
  auto dims = a.dims(2, "dim");
  if (dims.empty()) dims = {-2, -1};
  const bool keepdim = a.flag(3, "keepdim", false);
  if (a.has(1, "ord") && !a.is_text(1, "ord"))
    return {matrix_norm(x, a.number(1, "ord"), dims, keepdim)};
  return {matrix_norm(x, a.text(1, "ord", "fro"), dims, keepdim)};
}

}  // namespace

void add_linalg_calls(CallTable& t) {
  t["linalg.cholesky"] = call(cholesky, {{}, {"upper", false}});
  t["linalg.qr"] = qr_call;
  t["linalg.eigvalsh"] = [](A a) -> T {
    return {eigvalsh(a.tensor(0), a.text(1, "UPLO", "L") == "U")};
  };
  t["linalg.svdvals"] = call(svdvals, {{}});
  t["linalg.solve_triangular"] =
      call(solve_triangular,
           {{}, {}, {"upper"}, {"left", true}, {"unitriangular", false}});
  t["linalg.solve"] = call(solve, {{}, {}, {"left", true}});
  t["linalg.inv"] = call(inv, {{}});
  t["linalg.det"] = call(det, {{}});
  t["linalg.slogdet"] = [](A a) -> T {
    const SlogDet d = slogdet(a.tensor(0));
    return {d.sign, d.logabsdet};
  };
  t["matrix_exp"] = call(matrix_exp, {{}});
  t["linalg.matrix_power"] = call(matrix_power, {{}, {}});
  t["linalg.matrix_norm"] = matrix_norm_call;
  t["linalg.norm"] = norm_call;
}

}  // namespace dtensor::conformance
