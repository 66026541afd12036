// The check page: hands the model to the assay process, runs what that asks for in frames, shows what it says.
const LANES = {
  wasm_xnnpack: 'CPU: WebAssembly, XNNPACK',
  webgpu_mldrift: 'GPU: WebGPU, ML Drift',
};
const STAGES = {
  start: 'starting', runtime: 'loading LiteRT.js', load: 'compiling', first_run: 'first run',
  sequence: 'checking numbers', warmup: 'warming up', timed: 'timing', done: 'done',
};
const element = (id) => document.getElementById(id);
const cards = new Map();
let seen = 0;
let running = null;

function make(tag, {text, ...properties} = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

async function post(name, body) {
  const answer = await fetch(name, {method: 'POST', body});
  if (!answer.ok) throw new Error(`the assay process answered ${answer.status}`);
  return answer.json();
}

function laneCard(lane) {
  const verdict = make('span', {className: 'verdict none', text: 'waiting'});
  const bar = make('progress', {max: 1, value: 0, ariaLabel: `Progress on ${lane}`});
  const stage = make('div', {className: 'dim'});
  const body = make('div');
  const card = make('article', {className: 'lane'},
    make('div', {className: 'row'}, make('h2', {text: lane}), verdict),
    make('div', {className: 'what', text: LANES[lane]}), bar, stage, body);
  card.dataset.lane = lane;
  element('lanes').append(card);
  return {verdict, bar, stage, body, share: 0};
}

function setProgress(lane, {stage, done, total}) {
  const card = cards.get(lane);
  if (!card) return;
  const order = Object.keys(STAGES);
  // Half of the bar is for getting to the first run, half for the inferences.
  const share = stage === 'done' ? 1 : total ? 0.5 + 0.5 * done / total : 0.5 * order.indexOf(stage) / 4;
  card.share = Math.max(card.share, Math.min(share, 1));
  card.bar.value = card.share;
  card.stage.textContent = STAGES[stage] + (total ? `, inference ${done} of ${total}` : '');
  card.verdict.textContent = 'running';
  const sum = [...cards.values()].reduce((total_, {share: part}) => total_ + part, 0);
  element('overall').value = 0.95 * sum / cards.size;
}

const number = (value) => value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();

function judged(run) {
  if (run.failure_class) return ['bad', run.failure_class.replaceAll('_', ' '), run.error];
  const label = run.metrics?.verdict;
  const said = run.metrics?.verdict_sentence ?? '';
  if (run.output_match === false) return ['bad', 'wrong numbers', said];
  if (label === 'match') return ['good', 'match', said];
  if (label === 'precision_noise') return ['good', 'precision noise', said];
  return ['warn', 'runs', said || 'the numbers were not judged'];
}

const RANK = ['none', 'good', 'warn', 'bad'];

function showRun({lane, signature, run, refused_ops: refused}) {
  const card = cards.get(lane);
  const [kind, word, sentence] = judged(run);
  // Of several signatures, the worst is the lane's.
  if (RANK.indexOf(kind) >= RANK.indexOf(card.worst ?? 'none')) card.worst = kind;
  if (card.worst === kind) card.word = word;
  card.verdict.className = `verdict ${card.worst}`;
  card.verdict.textContent = card.word;
  card.share = 1;
  card.bar.remove();
  card.stage.remove();
  const metrics = run.metrics ?? {};
  const facts = [
    ['median', run.latency_p50_ms, 'ms'], ['first run', metrics.first_run_ms, 'ms'], ['compile', metrics.load_ms, 'ms'],
    ['LiteRT.js load', metrics.runtime_load_ms, 'ms'], ['WebAssembly memory', metrics.wasm_memory_mb, 'MiB'],
    ['largest difference', run.max_abs_diff, ''],
  ].filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value, unit]) => [name, `${name.startsWith('largest') ? value.toExponential(1) : number(value)} ${unit}`]);
  if (run.delegated_ops !== null && run.total_ops !== null && run.delegated_ops !== undefined) {
    facts.unshift(['ops on the GPU', `${run.delegated_ops} of ${run.total_ops}${run.full_delegation ? ', all' : ''}`]);
  }
  const list = make('dl');
  for (const [name, value] of facts) list.append(make('dt', {text: name}), make('dd', {text: value}));
  if (signature) card.body.append(make('h3', {className: 'mono', text: signature}));
  card.body.append(make('p', {className: 'sentence', text: sentence}), list);
  if (refused.length) {
    const lines = refused.map(({op, reason, count}) => `${op}: ${reason}${count > 1 ? ` (${count} times)` : ''}`);
    card.body.append(make('details', {open: true}, make('summary', {text: 'Refused by the GPU'}),
      make('pre', {text: lines.join('\n')})));
  }
  if (run.evidence?.length) {
    card.body.append(make('details', {}, make('summary', {text: `Evidence (${run.evidence.length} ${run.evidence.length === 1 ? 'line' : 'lines'})`}),
      make('pre', {text: run.evidence.join('\n')})));
  }
  showEnvironment(run.env);
}

function showEnvironment(env) {
  const adapter = env.webgpu_adapter;
  const parts = [
    `${env.browser} ${env.browser_version}`, [env.os, env.os_version].filter(Boolean).join(' '),
    `LiteRT.js ${env.litertjs_core_version} (${env.wasm_build ?? 'no'} build)`,
    adapter ? `WebGPU: ${Object.values(adapter).filter(Boolean).join(' ')} (${env.webgpu_adapter_kind})` : 'no WebGPU adapter',
    env.shader_f16 ? 'shader-f16' : 'no shader-f16',
  ];
  element('environment').textContent = parts.join('  ·  ');
}

function handle(event) {
  switch (event.kind) {
    case 'note':
      element('note').textContent = event.text.split(': ').slice(1).join(': ').replace(': verdict', ': judging the numbers');
      break;
    case 'job':
      running = event.lane;
      cards.get(event.lane).share = 0;
      element('frames').replaceChildren(make('iframe', {src: event.url, title: event.lane}));
      break;
    case 'over':
      running = null;
      element('frames').replaceChildren();
      setProgress(event.lane, {stage: 'done'});
      break;
    case 'run':
      showRun(event);
      break;
    case 'end':
      element('overall').value = 1;
      element('note').textContent = 'done';
      element('drop').classList.remove('busy');
      showErrors(event.errors);
      document.body.dataset.state = 'done';
      break;
  }
}

function showErrors(errors) {
  element('errors').hidden = errors.length === 0;
  element('errors').textContent = errors.join('\n');
}

async function follow() {
  for (;;) {
    try {
      const events = await post('events', JSON.stringify({since: seen}));
      seen += events.length;
      events.forEach(handle);
    } catch (error) {
      showErrors([`The assay process is gone: ${error.message}. Start it again with: assay browser check`]);
      return;
    }
  }
}

async function check(file) {
  document.body.dataset.state = 'running';
  showErrors([]);
  element('drop').classList.add('busy');
  element('model').hidden = element('lanes').hidden = false;
  element('name').textContent = file.name;
  element('size').textContent = `${(file.size / 1e6).toFixed(3)} MB`;
  element('digest').textContent = '';
  element('note').textContent = 'reading the file';
  element('overall').value = 0;
  element('lanes').replaceChildren();
  cards.clear();
  for (const lane of Object.keys(LANES)) cards.set(lane, laneCard(lane));
  try {
    const bytes = await file.arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    element('digest').textContent = `sha256 ${[...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
    const answer = await post('upload', new Blob([bytes]));
    if (answer.error) throw new Error(answer.error);
    await post('start', JSON.stringify({name: file.name}));
  } catch (error) {
    showErrors([error.message]);
    element('drop').classList.remove('busy');
  }
}

addEventListener('message', (event) => {
  if (event.origin === location.origin && running) setProgress(running, event.data);
});
const drop = element('drop');
for (const name of ['dragenter', 'dragover']) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add('over');
  });
}
for (const name of ['dragleave', 'drop']) drop.addEventListener(name, () => drop.classList.remove('over'));
// A file dropped beside the field must not replace the page.
addEventListener('dragover', (event) => event.preventDefault());
addEventListener('drop', (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer?.files ?? [];
  if (file && !drop.classList.contains('busy')) check(file);
});
drop.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' || event.key === ' ') element('file').click();
});
element('file').addEventListener('change', (event) => {
  const [file] = event.target.files;
  event.target.value = '';
  if (file) check(file);
});
follow();
