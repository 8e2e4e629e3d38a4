// SPDX-License-Identifier: Apache-2.0
//
// Two worker threads with an event loop each, libuv's pool (pbkdf2), timers, compiled code and its collector.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const crypto = require('crypto');
const rounds = +process.argv[2];

function digest(round) {
    const hash = crypto.createHash('sha256');
    const objects = [];
    for (let i = 0; i < 5000; i++) {
        objects.push({ i: i * round, s: 'x' + i });
        if (i % 100 === 0) hash.update(JSON.stringify(objects.slice(-50)));
    }
    return hash.digest('hex');
}

async function main() {
    const workers = [0, 1].map(() => new Worker(__filename, { argv: [rounds] }));
    const ask = (worker, round) => new Promise((done) => { worker.once('message', done); worker.postMessage(round); });
    let sum = 0n;
    for (let step = 0; step < 20; step++) {
        for (let round = 0; round < rounds; round++) {
            const all = await Promise.all(workers.map((w, k) => ask(w, (step * rounds + round) * 2 + k)));
            const key = await new Promise((done) => crypto.pbkdf2(all[0], 'salt', 500, 8, 'sha256', (e, k) => done(k.toString('hex'))));
            for (const hex of [...all, key]) sum ^= BigInt('0x' + hex);
        }
        await new Promise((done) => setTimeout(done, 1));
        console.log(step, sum.toString());
    }
    workers.forEach((w) => w.terminate());
}

if (isMainThread) main();
else parentPort.on('message', (round) => parentPort.postMessage(digest(round)));
