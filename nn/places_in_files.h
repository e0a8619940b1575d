// SPDX-License-Identifier: Apache-2.0
// Where the files of transformers keep the parameters of a model.
#pragma once
#include <string>
#include <vector>

#include "dtensor/io/safetensors.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

// The place of a parameter, or of a part of it, in a file: a window of one of
// the file's tensors.
struct PlaceInFile {
  std::string name;
  Shape shape;  // of the whole tensor in the file
  SafetensorsWindow window = {};
  int64_t expert = -1;  // if >= 0, only the part of this expert lies here
  Shape viewed = {};    // if not empty, the parameter's shape in the window

  // Returns the part of the parameter that lies here, on the same ranks.
  DistTensor part_of(const DistTensor& parameter) const;
};

// The places of all parameters of a model, as its Architecture::names say.
// Parameters that are made on load (weight_scale) have none.
class PlacesInFiles {
 public:
  // `without_prefix`: the names in the files lack
  // Architecture::optional_prefix, as in files of a model without its head.
  PlacesInFiles(const LanguageModel& model, bool without_prefix);

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  // The places of one of parameters(). If it has several, each holds a part;
  // the parts are in the order of the parameter's first dimension.
  std::vector<PlaceInFile> of(const NamedParameter&) const;

 private:
  std::vector<PlaceInFile> with_prefix(const NamedParameter&) const;
  PlaceInFile beside_others(const NamedParameter&, const NameInFile&) const;
  int64_t rows_of(const std::string& name) const;

  const Architecture& of_;
  bool without_prefix_;
  int64_t heads_;
  std::vector<NamedParameter> parameters_;
};

}  // namespace dtensor::nn
