// SPDX-License-Identifier: Apache-2.0
// Reads the tree of a dimension in a layout's text, in both forms of layout.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cursor.h"
#include "dtensor/placement/layout.h"

namespace dtensor {

// A dimension, or a part of one, as it was written. `text` and `name` are views
// of the text that was read.
struct WrittenDim {
  Dim::Kind kind = Dim::Kind::kLeaf;
  std::string_view text, name;
  std::optional<int64_t> size;    // of a leaf, if written
  std::vector<WrittenDim> parts;  // of a product or concat
  std::vector<int> axes;          // of a leaf, like the next two
  int64_t granule = 0;            // 0: none written
  std::vector<int64_t> points;
};

// Reads a granule ("/64") or boundaries ("@0|3|8", "@(0|3|8)") if they follow.
void read_details(Cursor&, WrittenDim& leaf);
// Reads "{y,z}/64" into a leaf. In a concat, boundaries that another segment
// follows must be in brackets, since "|" separates segments too.
void read_axes(Cursor&, const Mesh&, WrittenDim& leaf);
// Reads the parts of a group, up to its ')' or ':'. If a mesh is given, axes
// may follow a leaf: "4{tp}".
WrittenDim read_group(Cursor&, const Mesh*);

// Throws Error if two parts have the same name.
void check_names(WrittenDim& tree);
// The leaf of that name. Throws Error if there is none.
WrittenDim& find_leaf(WrittenDim& tree, std::string_view name);
// Whether two trees have the same parts with the same names and sizes. A size
// that is not written matches any.
bool same_tree(const WrittenDim&, const WrittenDim&);

// Makes the Dim, of `size` indices. Throws Error if the written sizes do not
// fit; `where` then tells where `size` comes from: "dimension 0 of [4, 8] has
// size 4".
Dim make_dim(const WrittenDim&, int64_t size, const std::string& where,
             const Mesh&);

}  // namespace dtensor
