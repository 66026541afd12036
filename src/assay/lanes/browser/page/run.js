// One job: told by job.json, reported stage by stage, outputs sent back as they are in memory.
const report = {facts: {inference_ms: 0}, samples_ms: []};
let stage = 'start';

async function post(name, body) {
  const answer = await fetch(name, {method: 'POST', body});
  if (!answer.ok) throw new Error(`the server answered ${answer.status} to ${name}`);
}

// The answer comes when the other side is ready: it may read the machine's clock in between.
async function begin(name) {
  stage = name;
  self.assayProgress?.({stage});
  await post('stage', JSON.stringify({stage: name, report, console: self.assayConsole?.splice(0)}));
}

async function fetchBytes(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`the server answered ${answer.status} to ${name}`);
  return answer.arrayBuffer();
}

function resultsBody(arrays) {
  return JSON.stringify(arrays.map(({dtype, shape}) => ({dtype, shape})));
}

async function run() {
  const job = await (await fetch('job.json')).json();
  const litert = await import('./litert.js');
  report.facts.browser = await litert.describeBrowser();
  await begin('runtime');
  const jspi = job.runtime.jspi ?? (report.facts.browser.jspi_supported && !job.runtime.threads);
  const runtime = await litert.loadRuntime({jspi, threads: job.runtime.threads});
  report.facts.runtime = runtime;
  self.assayMemory = (bytes) => ({...litert.memory(), can_allocate: litert.canAllocate(bytes)});
  const lost = litert.deviceLost();
  lost.catch(() => {});
  const orLost = (promise) => Promise.race([promise, lost]);
  let inferences = 0;
  // All inferences go through here, so that their sum can be told from everything around them.
  const infer = async (set) => {
    const start = performance.now();
    const arrays = await orLost(litert.invoke(signature, sets[set]));
    const ms = performance.now() - start;
    report.facts.inference_ms += ms;
    self.assayProgress?.({stage, done: ++inferences, total: job.sequence.length + (job.runs && job.warmup + job.runs)});
    return {arrays, ms};
  };

  const fetchStart = performance.now();
  const bytes = new Uint8Array(await fetchBytes('model'));
  report.facts.model_fetch_ms = performance.now() - fetchStart;
  const sets = [];
  for (let set = 0; set < job.input_sets; set++) {
    const inputs = [];
    for (const [index, {dtype, shape}] of job.inputs.entries()) {
      const Type = litert.TYPED_ARRAYS[dtype] ?? Uint8Array;
      inputs.push({data: new Type(await fetchBytes(`input/${set}/${index}`)), shape});
    }
    sets.push(inputs);
  }

  await begin('load');
  const {model, ms: loadMs} = await orLost(litert.compile(bytes, job.accelerator, job.compile));
  report.load_ms = loadMs;
  report.facts.is_fully_accelerated = model.isFullyAccelerated ?? null;
  report.facts.accelerator = model.options?.accelerator ?? null;
  report.facts.signatures = Object.keys(model.signatures);
  const signature = litert.signatureOf(model, job.signature);
  report.facts.inputs = litert.describeTensors(signature.getInputDetails());
  report.facts.outputs = litert.describeTensors(signature.getOutputDetails());
  const order = inputOrder(job.inputs, report.facts.inputs);
  for (let set = 0; set < sets.length; set++) sets[set] = order.map((index) => sets[set][index]);
  litert.checkShapes(order.map((index) => job.inputs[index]), report.facts.inputs);

  await begin('first_run');
  for (const [position, set] of job.sequence.entries()) {
    const {arrays, ms} = await infer(set);
    if (position === 0) {
      report.first_run_ms = ms;
      report.facts.outputs_served_by = arrays.map(({served}) => served);
      await begin('sequence');
    }
    for (const [index, {data}] of arrays.entries()) {
      await post(`output/${position}/${index}`, new Blob([data]));
    }
    await post(`outputs/${position}`, resultsBody(arrays));
  }

  if (job.runs > 0) {
    await begin('warmup');
    for (let count = 0; count < job.warmup; count++) await infer(0);
    await begin('timed');
    const end = performance.now() + job.budget_s * 1000;
    while (report.samples_ms.length < job.runs) {
      if (report.samples_ms.length >= 3 && performance.now() > end) {
        report.budget_hit = true;
        break;
      }
      report.samples_ms.push((await infer(0)).ms);
    }
  }
  report.facts.memory = litert.memory();
  await begin('done');
}

// LiteRT.js takes inputs in its own order; ours is matched to it by name, where names tell.
function inputOrder(ours, theirs) {
  if (ours.length !== theirs.length) {
    throw new Error(`the model has ${theirs.length} inputs in LiteRT.js and ${ours.length} in the file`);
  }
  const names = ours.map(({name}) => name);
  const order = theirs.map(({name}) => names.indexOf(name));
  return new Set(order).size === order.length && !order.includes(-1) ? order : ours.map((_, index) => index);
}

run().catch(async (error) => {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  try {
    await post('failure', JSON.stringify({
      stage, error: text, stack: error?.stack ?? null, report, console: self.assayConsole?.splice(0),
    }));
  } catch (gone) {
    console.error(`Assay could not report a failure: ${text}; ${gone}`);
  }
});
