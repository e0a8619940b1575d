// SPDX-License-Identifier: Apache-2.0
// Nobody here includes this, and dtensor's own headers must not find it.
#error "this is the consumer's placement/mesh.h, not dtensor's"
