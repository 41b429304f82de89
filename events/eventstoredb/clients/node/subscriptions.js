import assert from "node:assert/strict";
import { test } from "node:test";
import { client, counted, d, Feed, limit, texts, write } from "./kit.js";

test("a subscription catches up and goes on with what is written then", limit, async () => {
	const stream = `shop-${d.name}-live`;
	await write(stream, 0, 300);
	const feed = new Feed(client.subscribeToStream(stream, { fromRevision: d.START }));
	assert.deepEqual(await feed.texts(300), Array.from({ length: 300 }, (_, i) => `${i}`));
	await feed.caughtUp;
	await write(stream, 300, 303);
	assert.deepEqual(await feed.texts(3), ["300", "301", "302"]);
	await feed.end();

	const resumed = new Feed(client.subscribeToStream(stream, { fromRevision: 300n }));
	assert.deepEqual(await resumed.texts(2), ["301", "302"]);
	await resumed.end();
});

test("all is filtered by streams and by types", limit, async () => {
	const [mine, other] = [`filtered-${d.name}`, `shop-${d.name}-beside`];
	const checkpoints = [];
	const byStream = new Feed(client.subscribeToAll({
		fromPosition: d.START,
		filter: d.streamNameFilter({
			prefixes: [mine], checkpointInterval: 1, maxSearchWindow: 4,
			checkpointReached: (_, position) => { checkpoints.push(position); },
		}),
	}));
	const byType = new Feed(client.subscribeToAll({
		fromPosition: d.START, filter: d.eventTypeFilter({ regex: `^wanted-${d.name}$` }),
	}));
	for (const i of [0, 10, 20]) {
		await write(mine, i, i + 2);
		await write(other, i, i + 10);
		await write(other, i, i + 1, `wanted-${d.name}`);
	}
	const seen = await byStream.take(6);
	assert.deepEqual(texts(seen.map(({ event }) => event)), ["0", "1", "10", "11", "20", "21"]);
	assert.ok(seen.every(({ event }) => event.streamId === mine));
	assert.deepEqual(await byType.texts(3), ["0", "10", "20"]);
	await byStream.end();
	await byType.end();
	assert.ok(checkpoints.length > 0, "no checkpoint said how far the search had come");
	const commits = checkpoints.map((p) => p.commit);
	// The one that tells of going live may repeat the one before.
	assert.ok(commits.every((c, i) => i === 0 || c >= commits[i - 1]), `checkpoints went back: ${commits}`);
});

test("a subscription to all resumes behind a position", limit, async () => {
	const stream = `resumed-${d.name}`;
	const filter = d.streamNameFilter({ prefixes: [stream] });
	await write(stream, 0, 20);
	const first = new Feed(client.subscribeToAll({ fromPosition: d.START, filter }));
	const seen = await first.take(7);
	await first.end();
	const { position } = seen.at(-1).event;
	const second = new Feed(client.subscribeToAll({ fromPosition: position, filter }));
	await write(stream, 20, 25);
	assert.deepEqual(await second.texts(18), Array.from({ length: 18 }, (_, i) => `${i + 7}`));
	await second.end();
});

test("a subscription starts at the start, the end or a revision", limit, async () => {
	const stream = `shop-${d.name}-starts`;
	await write(stream, 0, 3);
	const starts = { start: d.START, end: d.END, revision: 0n };
	const feeds = Object.entries(starts).map(([name, fromRevision]) => [name, new Feed(client.subscribeToStream(stream, { fromRevision }))]);
	await Promise.all(feeds.map(([, feed]) => feed.caughtUp));
	await write(stream, 3, 4);
	const want = { start: counted(0, 4), end: counted(3, 4), revision: counted(1, 4) };
	for (const [name, feed] of feeds) {
		assert.deepEqual(await feed.texts(want[name].length), want[name], name);
		await feed.end();
	}
});

test("a subscription to a stream that does not exist waits for it", limit, async () => {
	const stream = `shop-${d.name}-later`;
	const feed = new Feed(client.subscribeToStream(stream));
	await feed.caughtUp;
	await write(stream, 0, 2);
	assert.deepEqual(await feed.texts(2), ["0", "1"]);
	await feed.end();
});

test("a subscription to all starts at the end and says that it caught up", limit, async () => {
	const stream = `shop-${d.name}-tail`;
	const feed = new Feed(client.subscribeToAll({ fromPosition: d.END }));
	await feed.caughtUp;
	await write(stream, 0, 2);
	const events = (await feed.take(2)).map(({ event }) => event);
	assert.deepEqual(events.map((e) => [e.streamId, e.data.text]), [[stream, "0"], [stream, "1"]]);
	await feed.end();
});

test("every filter of all selects as it says", limit, async () => {
	const [mine, other] = [`filtered-${d.name}-kinds`, `shop-${d.name}-kinds`];
	const filters = {
		"a prefix of streams": d.streamNameFilter({ prefixes: [mine] }),
		"an expression over streams": d.streamNameFilter({ regex: `^${mine}$` }),
		"a prefix of types": d.eventTypeFilter({ prefixes: [`kind-${d.name}`] }),
		"an expression over types": d.eventTypeFilter({ regex: `^kind-${d.name}$`, checkpointInterval: 2 }),
	};
	const feeds = Object.entries(filters).map(([name, filter]) => [name, new Feed(client.subscribeToAll({ fromPosition: d.START, filter }))]);
	const plain = new Feed(client.subscribeToAll({ fromPosition: d.END, filter: d.excludeSystemEvents() }));
	await plain.caughtUp;
	await write(other, 0, 3);
	await write(mine, 0, 3, `kind-${d.name}`);
	for (const [name, feed] of feeds) {
		assert.deepEqual(await feed.texts(3), ["0", "1", "2"], name);
		await feed.end();
	}
	assert.deepEqual((await plain.take(6)).map(({ event }) => event.streamId), [other, other, other, mine, mine, mine]);
	await plain.end();
});

test("a search that finds nothing says how far it came", limit, async () => {
	const stream = `shop-${d.name}-search`;
	let feed;
	const reached = new Promise((resolve) => {
		const filter = d.streamNameFilter({ prefixes: ["absent-"], checkpointInterval: 1, maxSearchWindow: 5, checkpointReached: (_, position) => resolve(position) });
		feed = new Feed(client.subscribeToAll({ fromPosition: d.START, filter }));
	});
	await write(stream, 0, 20);
	assert.ok((await reached).commit > 0n);
	await feed.end();
});
