// SPDX-License-Identifier: Apache-2.0
// Shared by unary.cc, binary.cc and pointwise.cc. Private to ops.
#pragma once
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::internal {

// The parameters of F as arguments of an operator. They are value()s
// (ops/fields.h): calls that differ only in them share a choice of layouts.
template <class F, int n = fn::facts<F>().num_params>
struct FunctionArgs;
template <class F>
struct FunctionArgs<F, 1> {
  static constexpr Fields kFields = {value(F::params[0].name)};
  double p0;
};
template <class F>
struct FunctionArgs<F, 2> {
  static constexpr Fields kFields = {value(F::params[0].name),
                                     value(F::params[1].name)};
  double p0, p1;
};
template <class F>
struct FunctionArgs<F, 3> {
  static constexpr Fields kFields = {value(F::params[0].name),
                                     value(F::params[1].name),
                                     value(F::params[2].name)};
  double p0, p1, p2;
};
// make() converts an array of parameters to FunctionArgs, and read() converts
// them back. Without parameters, the Attrs and the array are empty.
struct ArgsAccess {
  Attrs (*make)(const double* p);
  std::span<const double> (*read)(const Attrs&);
};
template <class F>
constexpr ArgsAccess args_access() {
  if constexpr (fn::facts<F>().num_params == 0) {
    return {[](const double*) { return Attrs(); },
            [](const Attrs&) { return std::span<const double>(); }};
  } else {
    using Args = FunctionArgs<F>;
    return {[](const double* p) {
              Args args;
              std::memcpy(&args, p, sizeof(args));
              return Attrs(args);
            },
            [](const Attrs& a) {
              const Args& args = a.as<Args>();
              return std::span(&args.p0, sizeof(args) / sizeof(double));
            }};
  }
}
template <class... F>
const ArgsAccess& args_of(fn::FunctionList<F...>, int index) {
  static constexpr ArgsAccess all[] = {args_access<F>()...};
  return all[index];
}

// The arguments of an element-wise kernel: the call's inputs, and its one or
// two outputs. Strides are 0 where broadcasting repeats an input.
kernels::Pointwise pointwise_arguments(Compute&, DType);
// The rule of an element-wise operator, such as "...,...->... | linear 0,1".
std::string elementwise_rule(int inputs, std::string_view notes,
                             int outputs = 1);
// The name under which users call a function: "add" for add_scalar.
constexpr std::string_view called(const fn::Function& f) {
  return f.name.substr(0, f.name.find("_scalar"));
}
// A sample of operand i of a function, for the proof driver.
SampleInput sample_operand(const fn::Function&, int i, const Shape&);
// The dtype in which a function computes operands of dtype t. Throws Error if
// the function does not take t.
DType type_for(const fn::Function&, DType t);
// Sets p to the parameters of a call for operands of dtype t: the given
// numbers, and the function's defaults for those not given. Throws Error if
// there are too few or too many numbers, or if one does not fit the dtype.
void numbers_for(const fn::Function&, DType t, std::span<const Number>,
                 double* p);
// Sets p to the parameters that the proof driver uses.
void sample_numbers(const fn::Function&, double* p);

Weight weight_of(const DistTensor& x);
// Throws Error if an integer of this type would be a rounded number, or does
// not fit the type.
void check_exact(Number, DType, std::string_view op);
// A tensor without dimensions that holds a number, on x's mesh. Calls
// check_exact().
DistTensor constant_like(const DistTensor& x, Number, DType,
                         std::string_view op);

// f'(x) * u for the function f with this index in fn::UnaryFunctions. REQUIRES:
// f has no parameters.
DistTensor unary_slope(int index, const DistTensor& x, const DistTensor& u);

}  // namespace dtensor::internal
