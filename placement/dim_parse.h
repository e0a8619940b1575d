// The tree of a dimension as it is written in a layout, in either grammar.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cursor.h"
#include "dtensor/placement/layout.h"

namespace dtensor {

// A dimension, or a part of one. The texts are parts of the text that was read.
struct WrittenDim {
  Dim::Kind kind = Dim::Kind::kLeaf;
  std::string_view text, name;
  std::optional<int64_t> size;    // of a leaf
  std::vector<WrittenDim> parts;  // of the others
  std::vector<int> axes;          // of a leaf, as the next two
  int64_t granule = 0;            // 0: none given
  std::vector<int64_t> points;
};

// "/64", "@0|3|8" or "@(0|3|8)", if there is one.
void read_details(Cursor&, WrittenDim& leaf);
// "{y,z}/64", to a leaf. In a tree, where | may go on with the next segment,
// boundaries without brackets end with the part.
void read_axes(Cursor&, const Mesh&, WrittenDim& leaf);
// The parts of a group, up to its ')' or ':'. With a mesh, leaves have axes.
WrittenDim read_group(Cursor&, const Mesh*);

// Throws Error when two parts have one name.
void check_names(WrittenDim& tree);
// The leaf of that name. Throws Error when there is none.
WrittenDim& find_leaf(WrittenDim& tree, std::string_view name);
// Do two trees name the same parts of the same sizes?
bool same_tree(const WrittenDim&, const WrittenDim&);

// The Dim of that size; `where` says, in an Error, whose size it is.
Dim make_dim(const WrittenDim&, int64_t size, const std::string& where,
             const Mesh&);

}  // namespace dtensor
