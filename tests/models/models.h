// SPDX-License-Identifier: Apache-2.0
// Small models of many kinds, each as a function from parameters to a loss.
// tools/model_cases.py has the same models in torch.
#pragma once
#include "tests/models/parameters.h"

namespace dtensor::testing {

// A U-Net with group norm, a strided and a transposed convolution, and bilinear
// interpolation. "sp" splits the rows of the images. `width` is the number of
// channels at the full size of the images.
DistTensor unet(Parameters&, const Shape& images = {3, 3, 22, 18},
                int64_t width = 8);
// ResNet-50 (He et al., 2015), by default with a sixteenth of its channels.
// "sp" splits the rows of the images.
DistTensor resnet(Parameters&, const Shape& images = {5, 3, 40, 36},
                  int64_t width = 4);
// DLRM (Naumov et al., 2019): tables, products of pairs, and two MLPs.
DistTensor dlrm(Parameters&);
// Convolutions over time, and the CTC loss. "sp" splits the time.
DistTensor ctc(Parameters&);
// A diffusion transformer (Peebles and Xie, 2022) of two blocks. "sp" splits
// the rows of the images.
DistTensor dit(Parameters&);
// The negative log-likelihood of a Gaussian process, by Cholesky.
DistTensor gaussian_process(Parameters&);

}  // namespace dtensor::testing
