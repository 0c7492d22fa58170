// Runs once, when the list of tags is there. A tick asks for the maps of all ticked labels.
element.addEventListener('change', (event) => {
  if (!event.target.matches('input[data-label]')) return;
  const ticked = [...element.querySelectorAll('input[data-label]:checked')].map((box) => box.dataset.label);
  trigger('tick', { ticked });
});
// A new answer is patched into the old list, where a box keeps what the user did to it: follow the answer instead.
watch('value', () => {
  for (const box of element.querySelectorAll('input[data-label]')) box.checked = box.hasAttribute('checked');
});
