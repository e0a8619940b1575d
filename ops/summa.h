// Products of two matrices that are both split in two dimensions, by panels.
//
// SUMMA (van de Geijn and Watts, Concurrency: Practice and Experience 9, 1997)
// multiplies a [m, k] and b [k, n] on a mesh x by y. m is split over x, n over
// y, and k over the other axis in each operand. A rank computes its block of
// the result as a sum over panels of k. For each panel, its row of ranks
// gathers these columns of a, and its column of ranks these rows of b; neither
// matrix is ever whole. A rank receives (y-1)/y of its rows of a and (x-1)/x of
// its columns of b:
//
//   mk/x (y-1)/y + kn/y (x-1)/x   elements.
//
// One all-gather of each matrix would receive as much. The size of the panels
// limits the memory.
//
// Mesh axes that split neither m nor n divide the contraction: each rank along
// them takes a part of every panel, and the result is partial over them. If a
// and b are replicated along such an axis of size c, a rank receives only 1/c
// of the elements above, and c results must be added. This is 2.5-D
// multiplication, or 3-D if c = x (Solomonik and Demmel, Euro-Par 2011).
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct SummaOptions {
  // The most bytes that a rank holds for a panel of a and of b together. 0: no
  // limit, one panel.
  int64_t panel_bytes = 0;
};

// a [m, k] times b [k, n], as matmul(a, b). The result's rows are split as a's
// rows and its columns as b's columns; it is partial over the other axes. In
// the backward pass the panels are gathered again, and the gradients return to
// the layouts of a and b panel by panel. Every rank of the mesh calls it.
// Throws Error if an axis splits both the rows of a and the columns of b, or if
// one column of a and one row of b take more than panel_bytes.
DistTensor summa(const DistTensor& a, const DistTensor& b,
                 const SummaOptions& = {});

// The number of panels of such a call.
int64_t summa_panels(const Spec* a, const Spec* b, const SummaOptions& = {});

}  // namespace dtensor
