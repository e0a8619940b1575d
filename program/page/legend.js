// SPDX-License-Identifier: Apache-2.0
// The signs of layouts and of rules: [where one stands, an example, its meaning]. A
// legend has those that stand in the text beside it.

const LAYOUT_SIGNS = [
  [/S\d/, "S0", "dimension 0 is split along that axis"],
  [/R/, "R", "each rank along it holds a copy"],
  [/P(?!\()/, "P", "each rank along it holds a term of a sum that is still to be taken"],
  [/P\(/, "P(max)", "the same for another reduction than the sum"],
  [/\{/, "[{tp},{}]", "for each dimension instead, the axes that split it"],
  [/\/\d/, "S0/64", "in blocks of 64 indices that stay together"],
  [/@/, "@0|3|5", "at these boundaries"],
  [/[S{\]]?\(\d|\(\.\.\.\)/, "(3 4{tp})", "a dimension of 12 seen as 3 times 4, or, with |, as segments of 3 and 4"],
  [/⇒/, "a⇒b", "an input moves from layout a to layout b first"],
  [/·/, "a · b", "several inputs"],
  [/→/, "a → b", "inputs, then outputs"],
];
const RULE_SIGNS = [
  [/[a-z]/, "mk", "each letter is a dimension; equal letters have one size and are split together"],
  [/[A-Z]/, "Z", "capitals are leading dimensions"],
  [/\.\.\./, "...", "any number of leading dimensions"],
  [/~/, "n~", "if n is split, the operator combines the ranks’ parts itself, with small collectives inside"],
  [/!/, "n!", "n is never split"],
  [/\^/, "n^", "each rank holds one range of n"],
  [/\(/, "(hd)", "one dimension, of which h is the outer part"],
  [/->/, "->", "inputs, then outputs; a letter that the outputs lack is summed up, and leaves P if it is split"],
  [/\| .*linear/, "linear 0", "input 0 may be a sum that is still to be taken (0,1: both together)"],
  [/\| .*affine/, "affine 0", "the same for an average"],
  [/\| .*(up|down)/, "up 0", "the same for a maximum or a minimum; down swaps them"],
  [/\| .*max \d/, "max 0", "the same for a maximum"],
  [/\w:\w/, "k:max", "k is combined by a maximum instead of a sum"],
  [/link/, "link h g", "an axis that splits h may split g too"],
];

function legend(head, signs, text) {
  const used = signs.filter(([sign]) => sign.test(text));
  return used.length > 0 && el("p", { class: "note" }, head, " ",
    used.map(([, sign, meaning], i) => [i > 0 && "; ", code(sign), ": ", meaning]), ".");
}
function layout_legend(rec, text) {
  const axes = rec.mesh.axes.map((axis) => axis.name).join(", ");
  return legend(`Layouts${axes && `, one placement for each axis of the mesh (${axes})`}.`, LAYOUT_SIGNS, text);
}
const rule_legend = (rule) => legend("Rules.", RULE_SIGNS, rule);
