import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, d, limit, SESSION, texts, write } from "./kit.js";

test("a stream that is not there is not found", limit, async () => {
	await assert.rejects(collect(client.readStream(`shop-${d.name}-absent`)), d.StreamNotFoundError);
});

test("all is read both ways from a position", limit, async () => {
	const stream = `shop-${d.name}-all`;
	await write(stream, 0, 3);
	const all = await collect(client.readAll());
	const mine = all.filter((e) => e.streamId === stream);
	assert.deepEqual(texts(mine), ["0", "1", "2"]);
	const forwards = await collect(client.readAll({ fromPosition: mine[1].position, maxCount: 1 }));
	assert.equal(forwards[0].id, mine[1].id, "forwards from a position begins with it");
	const backwards = await collect(client.readAll({ direction: d.BACKWARDS, fromPosition: mine[1].position, maxCount: 1 }));
	assert.equal(backwards[0].id, mine[0].id, "backwards from a position begins before it");
});

test("a read is bounded and starts where it is told to", limit, async () => {
	const stream = `shop-${d.name}-bounded`;
	await write(stream, 0, 10);
	const read = async (options) => texts(await collect(client.readStream(stream, options)));
	assert.deepEqual(await read({ maxCount: 3 }), ["0", "1", "2"]);
	assert.deepEqual(await read({ fromRevision: d.START, maxCount: 2 }), ["0", "1"]);
	assert.deepEqual(await read({ fromRevision: 8n }), ["8", "9"]);
	assert.deepEqual(await read({ fromRevision: 100n }), []);
	assert.deepEqual(await read({ direction: d.BACKWARDS, fromRevision: d.END, maxCount: 2 }), ["9", "8"]);
	assert.deepEqual(await read({ direction: d.BACKWARDS, fromRevision: 1n }), ["1", "0"]);
	assert.deepEqual(await read({ direction: d.BACKWARDS, fromRevision: 100n, maxCount: 1 }), ["9"]);
});

test("a read of which the rest is not wanted ends", limit, async () => {
	const stream = `shop-${d.name}-left`;
	await write(stream, 0, 2_000);
	for (let i = 0; i < 20; i++) {
		for await (const { event } of client.readStream(stream)) {
			if (event.revision === 3n) break;
		}
	}
	assert.equal((await collect(client.readStream(stream, { maxCount: 5 }))).length, 5);
});

test("links are no links here, and asking to follow them changes nothing", limit, async () => {
	const stream = `shop-${d.name}-links`;
	await write(stream, 0, 2);
	assert.deepEqual(texts(await collect(client.readStream(stream, { resolveLinkTos: true }))), ["0", "1"]);
	const all = await collect(client.readAll({ resolveLinkTos: true }));
	assert.deepEqual(texts(all.filter((e) => e.streamId === stream)), ["0", "1"]);
});

test("all has ends, and nothing behind them", limit, async () => {
	const stream = `shop-${d.name}-ends`;
	await write(stream, 0, 2);
	const first = await collect(client.readAll({ fromPosition: d.START, maxCount: 1 }));
	assert.equal(first.length, 1);
	const last = await collect(client.readAll({ direction: d.BACKWARDS, fromPosition: d.END, maxCount: 2 }));
	assert.deepEqual(texts(last), ["1", "0"]);
	// The later client turns reads around that begin at the end that they run to.
	if (d.name === "eventstore") {
		assert.deepEqual(await collect(client.readAll({ fromPosition: d.END })), []);
		assert.deepEqual(await collect(client.readStream(stream, { fromRevision: d.END })), []);
		assert.deepEqual(texts(await collect(client.readStream(stream, { direction: d.BACKWARDS, fromRevision: d.START }))), ["0"]);
		assert.deepEqual(await collect(client.readAll({ direction: d.BACKWARDS, fromPosition: d.START })), []);
	}
	await assert.rejects(collect(client.readAll({ fromPosition: { commit: 1n << 60n, prepare: 1n << 60n } })));
});
