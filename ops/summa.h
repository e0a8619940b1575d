// Products of two matrices that are both split in two dimensions, in panels.
//
// SUMMA (van de Geijn and Watts, Concurrency: Practice and Experience 9,
// 1997): with a [m, k] and b [k, n] on a mesh x by y, m split over x, n over y
// and k over the other axis of either, a rank computes its block of the result
// as a sum over panels of k. For each panel its row of ranks gathers these
// columns of a, and its column of ranks these rows of b; neither is ever whole.
// A rank receives (y-1)/y of its rows of a and (x-1)/x of its columns of b,
//
//   mk/x (y-1)/y + kn/y (x-1)/x   elements,
//
// as one all-gather of each would send, with as much memory as one likes.
//
// Mesh axes that split neither m nor n share the contraction: of each panel
// they take a part each, and the result is partial over them. With a and b
// copied along such an axis of size c, whose copies cost nothing, 1/c of that
// is received, and the sum of c results: 2.5-D, or 3-D with as many as there
// are x (Solomonik and Demmel, Euro-Par 2011).
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct SummaOptions {
  // The most that a rank holds of a panel of a and of b, in bytes; 0: any, in
  // one panel.
  int64_t panel_bytes = 0;
};

// a [m, k] times b [k, n]: as matmul(a, b). The result's rows are split as
// those of a, its columns as those of b, and it is partial over the other axes.
// Differentiable: the backward pass gathers the panels again, and gradients
// return to where a and b lie panel by panel. Collective. Throws Error when an
// axis splits both the rows of a and the columns of b, and when panel_bytes is
// less than one column of a and one row of b take.
DistTensor summa(const DistTensor& a, const DistTensor& b,
                 const SummaOptions& = {});

// How many panels that takes.
int64_t summa_panels(const Spec* a, const Spec* b, const SummaOptions& = {});

}  // namespace dtensor
