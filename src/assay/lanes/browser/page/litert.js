// What every page of Assay does with LiteRT.js: load it, compile a model, feed it, read it back.
import * as litert from '@litertjs/core';

export const TYPED_ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
};

const WASM_FOLDER = new URL('./litertjs/core/wasm/', import.meta.url).pathname;

/** The browser and the machine under it, as far as they tell. */
export async function describeBrowser() {
  const facts = {
    user_agent: navigator.userAgent,
    cross_origin_isolated: self.crossOriginIsolated,
    secure_context: self.isSecureContext,
    jspi_supported: 'Suspending' in WebAssembly,
    webnn_present: 'ml' in navigator,
    hardware_concurrency: navigator.hardwareConcurrency ?? null,
    device_memory_gb: navigator.deviceMemory ?? null,
    js_heap_limit_mb: performance.memory ? performance.memory.jsHeapSizeLimit / 2 ** 20 : null,
    ua: null,
    webgpu: await describeWebGpu(),
  };
  if (navigator.userAgentData) {
    const hints = ['platform', 'platformVersion', 'model', 'architecture', 'bitness', 'fullVersionList'];
    facts.ua = await navigator.userAgentData.getHighEntropyValues(hints);
  }
  return facts;
}

async function describeWebGpu() {
  if (!('gpu' in navigator)) return {present: false, adapter: null};
  // The same choice of adapter as LiteRT.js makes.
  const adapter = await navigator.gpu.requestAdapter({powerPreference: 'high-performance'});
  if (!adapter) return {present: true, adapter: null};
  const info = adapter.info ?? {};
  const limits = {};
  for (const name of ['maxBufferSize', 'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage',
    'maxTextureDimension2D', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupStorageSize']) {
    limits[name] = adapter.limits[name] ?? null;
  }
  return {
    present: true,
    adapter: {
      vendor: info.vendor ?? '', architecture: info.architecture ?? '', device: info.device ?? '',
      description: info.description ?? '',
    },
    is_fallback: info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? null,
    features: [...adapter.features].sort(),
    limits,
  };
}

/** Load the runtime; how long it took, and which build of it the browser fetched. */
export async function loadRuntime({jspi, threads}) {
  const start = performance.now();
  await litert.loadLiteRt(WASM_FOLDER, {jspi, threads});
  const ms = performance.now() - start;
  const wasm = performance.getEntriesByType('resource').map((entry) => entry.name)
    .filter((name) => name.endsWith('.wasm')).at(-1) ?? '';
  return {ms, wasm_file: wasm.split('/').at(-1), thread_count: liteRtWasm().getThreadCount?.() ?? null};
}

export function liteRtWasm() {
  return litert.getGlobalLiteRt().liteRtWasm;
}

/** Resolves when the GPU device is lost; never where there is none. */
export async function deviceLost() {
  const device = await litert.getWebGpuDevice?.();
  if (!device?.lost) return new Promise(() => {});
  device.addEventListener?.('uncapturederror', (event) => {
    console.error(`WebGPU uncaptured error: ${event.error?.message}`);
  });
  return device.lost.then((info) => {
    throw Object.assign(new Error(`WebGPU device lost (${info.reason}): ${info.message}`), {name: 'DeviceLost'});
  });
}

/** Compile a model's bytes for 'wasm', 'webgpu' or 'webnn'. */
export async function compile(bytes, accelerator, {threads, precision} = {}) {
  const options = {accelerator};
  if (accelerator === 'wasm' && threads) options.cpuOptions = {numThreads: threads};
  if (precision && accelerator === 'webgpu') options.gpuOptions = {precision};
  if (precision && accelerator === 'webnn') options.webNNOptions = {precision};
  const start = performance.now();
  const model = await litert.loadAndCompile(bytes, options);
  return {model, ms: performance.now() - start};
}

/** A model's signature by key; its first one where the key is null. */
export function signatureOf(model, key) {
  if (key === null || key === undefined) return model;
  const signature = model.signatures[key];
  if (!signature) throw new Error(`No signature named ${key} found in model.`);
  return signature;
}

export function describeTensors(details) {
  return [...details].map(({name, dtype, shape}) => ({name, dtype, shape: [...shape]}));
}

/** Throws where a file leaves a shape open and LiteRT.js, which cannot resize, has settled for another one. */
export function checkShapes(ours, theirs) {
  for (const [index, {name, shape}] of ours.entries()) {
    if (String(theirs[index].shape) !== String(shape)) {
      throw Object.assign(
        new Error(`LiteRT.js cannot resize input ${name} from [${theirs[index].shape}] to [${shape}]`),
        {name: 'UnsupportedShape'});
    }
  }
}

/** One inference, host to host: typed arrays in, typed arrays out, everything freed in between. */
export async function invoke(signature, inputs) {
  const tensors = inputs.map(({data, shape}) => new litert.Tensor(data, shape));
  let outputs = [];
  try {
    outputs = await signature.run(tensors);
    const arrays = [];
    for (let index = 0; index < outputs.length; index++) {
      const served = outputs[index].accelerator;
      if (served !== 'wasm') outputs[index] = await outputs[index].moveTo('wasm');
      const {dtype, layout} = outputs[index].type;
      arrays.push({data: outputs[index].toTypedArray(), shape: [...layout.dimensions], dtype, served});
    }
    return arrays;
  } finally {
    for (const tensor of [...tensors, ...outputs]) tensor.delete();
  }
}

/** JS heap and WebAssembly memory now, in MiB; the latter never shrinks, so it is its peak. */
export function memory() {
  return {
    js_heap_mb: performance.memory ? performance.memory.usedJSHeapSize / 2 ** 20 : null,
    wasm_memory_mb: liteRtWasm().HEAPU8.buffer.byteLength / 2 ** 20,
  };
}

/** Whether WebAssembly can still allocate so many bytes; null where it is past answering. */
export function canAllocate(bytes) {
  // An argument above 32 bits would lose its upper ones.
  if (bytes >= 2 ** 32) return false;
  try {
    const pointer = liteRtWasm()._malloc(bytes);
    if (pointer) liteRtWasm()._free(pointer);
    return pointer !== 0;
  } catch {
    return null;
  }
}
