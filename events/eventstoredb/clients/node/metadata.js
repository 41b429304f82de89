import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, d, limit, texts, write } from "./kit.js";

test("metadata of a stream are kept", limit, async () => {
	const stream = `shop-${d.name}-metadata`;
	assert.equal((await client.getStreamMetadata(stream)).metadata, undefined);
	await client.setStreamMetadata(stream, { color: "red", nested: { n: 1 } }, d.after(d.NO_STREAM));
	assert.deepEqual((await client.getStreamMetadata(stream)).metadata, { color: "red", nested: { n: 1 } });
	await assert.rejects(client.setStreamMetadata(stream, { color: "blue" }, d.after(d.NO_STREAM)), d.WrongExpectedVersionError);
	await client.setStreamMetadata(stream, { color: "green" });
	assert.deepEqual((await client.getStreamMetadata(stream)).metadata, { color: "green" });
});

test("metadata that would hide events are refused, and hide nothing", limit, async () => {
	const stream = `shop-${d.name}-bounds`;
	await write(stream, 0, 5);
	for (const bound of [{ maxCount: 2 }, { maxAge: 1 }, { truncateBefore: 3 }]) {
		await assert.rejects(client.setStreamMetadata(stream, bound), d.AccessDeniedError, JSON.stringify(bound));
		assert.deepEqual(texts(await collect(client.readStream(stream))), ["0", "1", "2", "3", "4"]);
	}
	assert.equal((await client.getStreamMetadata(stream)).metadata, undefined);
});
