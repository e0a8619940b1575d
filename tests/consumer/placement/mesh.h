// SPDX-License-Identifier: Apache-2.0
// The consumer does not include this, and dtensor's headers must not find it.
#error "this is the consumer's placement/mesh.h, not dtensor's"
