/** The design tokens as colours that a canvas understands, resolved for the theme in effect. */
export function inks<Name extends string>(element: HTMLElement, names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("span");
  element.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color] as const;
  });
  probe.remove();
  return Object.fromEntries(found) as Record<Name, string>;
}
