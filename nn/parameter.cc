// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/parameter.h"

#include <map>
#include <string_view>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

void assign(const std::vector<NamedParameter>& parameters,
            const std::vector<NamedTensor>& values) {
  std::map<std::string_view, const DistTensor*> given;
  for (const NamedTensor& v : values)
    DT_CHECK(given.emplace(v.name, &v.tensor).second, "assign",
             "the value {} is given twice; pass it once", v.name);
  const NoGrad no_grad;
  std::vector<DistTensor> here;
  std::vector<SpecRef> to;
  for (const auto& [name, parameter] : parameters) {
    const auto found = given.find(name);
    DT_CHECK(found != given.end(), "assign",
             "no value is given for the parameter {}, or it is listed twice; "
             "pass the parameters of a model of the same architecture",
             name);
    const DistTensor& value = *found->second;
    DT_CHECK(value.shape() == parameter.shape(), "assign",
             "the value {} of {} does not have the shape of the parameter {}; "
             "pass the parameters of a model of the same sizes",
             value.spec()->to_string(), name, parameter.spec()->to_string());
    // Sends the smaller of the two types.
    const DType sent = size_of(parameter.dtype()) < size_of(value.dtype())
                           ? parameter.dtype()
                           : value.dtype();
    // (An operator would gather a parameter that is gathered on use.)
    here.push_back(DistTensor::wrap(converted(value.impl()->part(), sent),
                                    value.spec()->with(sent)));
    to.push_back(parameter.spec()->with(sent));
    given.erase(found);
  }
  DT_CHECK(given.empty(), "assign",
           "there is no parameter {}; leave the value out",
           given.begin()->first);
  relayout(here, to);
  for (size_t i = 0; i < here.size(); ++i) {
    DistTensor target = parameters[i].tensor;
    if (target.here())
      target.assign(converted(here[i].local(), target.dtype()));
  }
}

}  // namespace dtensor::nn
