// Asks llm-checker by the selector behind its `recommend`, with the row's model as the only candidate.
//
// Run by node with the path of the program. It knows a model in the memory of a GPU, or in RAM without a GPU; its budget
// is one of the two. Its estimate knows the backend, the weights, their bits and the size of the GPU, and no bandwidth.
'use strict';

const fs = require('fs');
const path = require('path');
const readline = require('readline');

const ROOT = path.dirname(path.dirname(fs.realpathSync(process.argv[2])));
const Selector = require(path.join(ROOT, 'src', 'models', 'deterministic-selector.js'));
const CONTEXT = 8192; // its default
const BITS = { Q8_0: 8.4, Q6_K: 6.4, Q5_K_M: 5.44, Q4_K_M: 4.64, Q3_K: 3.84, Q2_K: 2.96 };
const MAKERS = [['apple', 'apple_silicon'], ['radeon', 'amd'], ['rx ', 'amd'], ['ryzen', 'amd'], ['arc ', 'intel']];

function nearestQuant(question) {
    const bits = (question.file_gib * 2 ** 30 * 8) / (question.total_b * 1e9);
    const far = (name) => Math.abs(Math.log(BITS[name] / bits));
    return Object.keys(BITS).reduce((best, name) => (far(name) < far(best) ? name : best));
}

function hardwareOf(question, selector) {
    const name = question.gpu.toLowerCase();
    const maker = MAKERS.find(([word]) => name.includes(word));
    const gpu = question.strategy === 'cpu_only' ? { type: 'cpu_only' } : {
        model: question.gpu,
        type: maker ? maker[1] : 'nvidia',
        unified: question.unified,
        vram: question.unified ? question.ram_gib : question.gpu_gib,
    };
    return selector.normalizeHardwareProfile({ cpu: { architecture: 'x86_64' }, gpu, memory: { totalGB: question.ram_gib } });
}

function modelOf(question) {
    return {
        name: question.model,
        family: 'row',
        paramsB: question.total_b,
        totalParamsB: question.total_b,
        activeParamsB: question.active_b,
        isMoE: true,
        expertCount: question.experts,
        expertsActivePerToken: question.top_k,
        ctxMax: 131072,
        tags: [],
        modalities: ['text'],
        sizeByQuant: { [nearestQuant(question)]: question.file_gib },
    };
}

function ask(question, selector) {
    if (!['all_gpu', 'cpu_only'].includes(question.strategy)) {
        return { why_not: 'knows a model whole in the memory of a GPU, or in RAM without one' };
    }
    const quant = nearestQuant(question);
    const model = modelOf(question);
    if (question.wants === 'gpu_gib') {
        return { gpu_gib: selector.estimateRequiredGB(model, quant, question.context) };
    }
    const hardware = hardwareOf(question, selector);
    const budget = hardware.gpu.unified ? hardware.usableMemGB : hardware.gpu.vramGB || hardware.usableMemGB;
    const runtime = question.quant.startsWith('mlx') ? 'mlx' : 'llama.cpp';
    const found = selector.evaluateModel(model, hardware, 'general', CONTEXT, budget, 'balanced', runtime);
    if (found === null) return { why_not: 'says that it does not fit' };
    return found.quant === quant ? { tok_s: found.estTPS } : { why_not: `would take ${found.quant} instead of ${quant}` };
}

const selector = new Selector();
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
console.log(JSON.stringify({ version }));
readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const question = JSON.parse(line);
    let answer;
    try {
        answer = ask(question, selector);
    } catch (error) {
        answer = { why_not: `fails: ${error}`.slice(0, 200) };
    }
    console.log(JSON.stringify({ id: question.id, ...answer }));
});
