import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, d, limit, said, SERVER, texts, write } from "./kit.js";

test("an append is read as it was written, both ways", limit, async () => {
	const stream = `shop-${d.name}-append`;
	const events = [said("first"), said("second"), d.binaryEvent({ type: "drawn", data: Uint8Array.of(0, 255, 7) })];
	const result = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	assert.equal(result.success, true);
	assert.equal(result.nextExpectedRevision, 2n);

	const read = await collect(client.readStream(stream));
	assert.deepEqual(read.map((e) => e.id), events.map((e) => e.id));
	assert.deepEqual(read.map((e) => e.revision), [0n, 1n, 2n]);
	assert.deepEqual(read.map((e) => e.type), ["said", "said", "drawn"]);
	assert.deepEqual(read.map((e) => e.streamId), [stream, stream, stream]);
	assert.deepEqual(read.map((e) => e.isJson), [true, true, false]);
	assert.deepEqual(texts(read.slice(0, 2)), ["first", "second"]);
	assert.deepEqual([...read[2].data], [0, 255, 7]);
	assert.deepEqual(read[0].metadata, { by: d.name });
	// One of the clients tells times to the second.
	assert.ok(Math.abs(Date.now() - read[0].created) < 60_000, `it was created ${read[0].created}`);

	const back = await collect(client.readStream(stream, { direction: d.BACKWARDS, fromRevision: d.END, maxCount: 2 }));
	assert.deepEqual(back.map((e) => e.revision), [2n, 1n]);
	const tail = await collect(client.readStream(stream, { fromRevision: 1n }));
	assert.deepEqual(tail.map((e) => e.revision), [1n, 2n]);
});

test("an append that saw another length is a conflict", limit, async () => {
	const stream = `shop-${d.name}-conflict`;
	await write(stream, 0, 3);
	for (const [expected, actual] of [[d.NO_STREAM, 2n], [0n, 2n], [7n, 2n]]) {
		await assert.rejects(client.appendToStream(stream, said("late"), d.after(expected)), (err) => {
			assert.ok(err instanceof d.WrongExpectedVersionError, `${err}`);
			assert.equal(d.actual(err), actual);
			return true;
		});
	}
	await assert.rejects(client.appendToStream(`${stream}-absent`, said("late"), d.after(d.STREAM_EXISTS)), d.WrongExpectedVersionError);
	assert.equal((await collect(client.readStream(stream))).length, 3);
	const right = await client.appendToStream(stream, said("in time"), d.after(2n));
	assert.equal(right.nextExpectedRevision, 3n);
});

test("an append made again changes nothing", limit, async () => {
	const stream = `shop-${d.name}-again`;
	const events = [said("once"), said("twice")];
	const first = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	const again = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	assert.equal(again.nextExpectedRevision, first.nextExpectedRevision);
	assert.deepEqual(texts(await collect(client.readStream(stream))), ["once", "twice"]);
});

test("callers without a length that append one event at once write it once", limit, async () => {
	const stream = `shop-${d.name}-one`;
	for (const [i, expected] of [d.ANY, d.STREAM_EXISTS, undefined].entries()) {
		await write(stream, 2 * i, 2 * i + 1);
		const event = said(`${2 * i + 1}`);
		const options = expected === undefined ? undefined : d.after(expected);
		const results = await Promise.all(Array.from({ length: 8 }, () => client.appendToStream(stream, event, options)));
		assert.deepEqual(new Set(results.map((r) => r.nextExpectedRevision)), new Set([BigInt(2 * i + 1)]));
	}
	assert.deepEqual(texts(await collect(client.readStream(stream))), ["0", "1", "2", "3", "4", "5"]);
});

test("an append of many events is one", limit, async () => {
	const stream = `shop-${d.name}-many`;
	const events = Array.from({ length: 4_000 }, (_, i) => said(`${i}`.padStart(1_000, " ")));
	const result = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	assert.equal(result.nextExpectedRevision, 3_999n);
	const read = await collect(client.readStream(stream));
	assert.deepEqual(read.map((e) => e.id), events.map((e) => e.id));
});

test("an append over the limit is refused, and the client goes on", limit, async () => {
	const stream = `shop-${d.name}-huge`;
	await assert.rejects(client.appendToStream(stream, said("x".repeat(17 << 20))));
	await write(stream, 0, 1);
	assert.deepEqual(texts(await collect(client.readStream(stream))), ["0"]);
});

test("a conflict is a result where the client asks for that", limit, async () => {
	const asking = d.connect("", `${SERVER}&throwOnAppendFailure=false`);
	const stream = `shop-${d.name}-result`;
	await write(stream, 0, 2);
	const result = await asking.appendToStream(stream, said("late"), d.after(d.NO_STREAM));
	assert.equal(result.success, false);
	assert.equal(result.nextExpectedRevision, 1n);
	await asking.dispose();
});

test("data are of the type that the client said", limit, async () => {
	const stream = `shop-${d.name}-types`;
	const binary = [["42"], ['{"a":1}'], [""], ["\0\xff"]].map(([text]) => d.binaryEvent({ type: "drawn", data: Buffer.from(text, "latin1") }));
	const json = [42, "text", null, [1, 2], { a: 1 }].map((data) => d.jsonEvent({ type: "said", data }));
	await client.appendToStream(stream, [...binary, ...json], d.after(d.NO_STREAM));
	const read = await collect(client.readStream(stream));
	assert.deepEqual(read.map((e) => e.isJson), [...binary.map(() => false), ...json.map(() => true)]);
	assert.deepEqual(read.slice(0, 4).map((e) => Buffer.from(e.data)), binary.map((e) => Buffer.from(e.data)));
	assert.deepEqual(read.slice(4).map((e) => e.data), json.map((e) => e.data));
});

test("metadata of an event may be missing, JSON or bytes", limit, async () => {
	const stream = `shop-${d.name}-described`;
	await client.appendToStream(stream, [
		d.jsonEvent({ type: "said", data: {} }),
		d.jsonEvent({ type: "said", data: {}, metadata: { $correlationId: "one", n: 1 } }),
		d.jsonEvent({ type: "said", data: {}, metadata: Buffer.of(0, 255) }),
	]);
	const [none, object, bytes] = (await collect(client.readStream(stream))).map((e) => e.metadata);
	assert.ok(none === undefined || Object.keys(none).length === 0 || none.length === 0, `no metadata are read as ${none}`);
	assert.deepEqual(object, { $correlationId: "one", n: 1 });
	assert.deepEqual(Buffer.from(bytes), Buffer.of(0, 255));
});

test("an append whose time is over writes nothing later", limit, async () => {
	const stream = `shop-${d.name}-deadline`;
	await assert.rejects(client.appendToStream(stream, said("late"), { deadline: 0 }), d.DeadlineExceededError);
	await assert.rejects(collect(client.readStream(stream)), d.StreamNotFoundError);
});

test("a name that no stream can have is refused", limit, async () => {
	for (const name of ["", "$$", "$et-said"]) {
		await assert.rejects(client.appendToStream(name, said("lost")), `an append to ${JSON.stringify(name)}`);
	}
});
