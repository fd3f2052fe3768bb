export default { render(): void {} };
