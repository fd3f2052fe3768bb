/** Reads what is typed into the calculator: + − × ÷, brackets, powers, √ and e. Null where it makes no sense. */
export function calculate(text: string): number | null {
  const parts = text.replaceAll(",", ".").match(/\d+\.?\d*|\.\d+|[-+*/^()√eπ−–·×÷:]|\S/g) ?? [];
  let at = 0;
  const take = (...some: string[]): boolean => some.includes(parts[at] ?? "") && ++at > 0;

  function sum(): number {
    let left = product();
    for (;;) {
      if (take("+")) left += product();
      else if (take("-", "−", "–")) left -= product();
      else return left;
    }
  }

  function product(): number {
    let left = signed();
    for (;;) {
      if (take("*", "·", "×")) left *= signed();
      else if (take("/", "÷", ":")) left /= signed();
      else return left;
    }
  }

  function signed(): number {
    if (take("-", "−", "–")) return -signed();
    if (take("√")) return Math.sqrt(signed());
    const base = single();
    return take("^") ? base ** signed() : base;
  }

  function single(): number {
    if (take("(")) {
      const inside = sum();
      return take(")") ? inside : NaN;
    }
    if (take("e")) return Math.E;
    return Number(parts[at++] ?? "x");
  }

  const found = sum();
  return at === parts.length && Number.isFinite(found) ? found : null;
}
