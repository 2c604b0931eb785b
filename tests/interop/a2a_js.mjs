// One conversation of the client of @a2a-js/sdk with our agent; a line of JSON for each check.
// Called with the address of the server and the binding; the token is in the environment.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import {
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTasksRequest,
  Role,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  TaskPushNotificationConfig,
  TaskState,
} from '@a2a-js/sdk';
import {
  ClientFactory,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';

const [address, binding, version] = process.argv.slice(2);
const old = version === '0.3';
const WITHIN_MS = 20_000;

const DONE = TaskState.TASK_STATE_COMPLETED;
const ASKS = TaskState.TASK_STATE_INPUT_REQUIRED;
const CANCELED = TaskState.TASK_STATE_CANCELED;
const WORKING = TaskState.TASK_STATE_WORKING;

async function connected(token) {
  const headers = async () => (token ? { Authorization: `Bearer ${token}` } : {});
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
    headers,
    shouldRetryWithHeaders: async () => undefined,
  });
  const options = { fetchImpl, legacyCompat: { enabled: old } };
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory(options), new RestTransportFactory(options)],
    preferredTransports: [binding],
  });
  const card = await (await fetch(`${address}/.well-known/agent-card.json`)).json();
  // The one to be used: a client would take the first of its binding, which is the newest.
  card.supportedInterfaces = card.supportedInterfaces.filter(
    (one) => one.protocolBinding === binding && one.protocolVersion === version
  );
  assert.equal(card.supportedInterfaces.length, 1, `${binding} ${version} is not in the card`);
  const client = await factory.createFromAgentCard(card);
  assert.equal(client.protocolVersion, version);
  return client;
}

const within = () => ({ signal: AbortSignal.timeout(WITHIN_MS) });

function said(part, more = {}, configuration = {}) {
  const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [part], ...more };
  return SendMessageRequest.fromJSON({ message, configuration });
}

const parts = (holder) => holder?.parts?.map((one) => one.content) ?? [];
const dataOf = (holder) => parts(holder).find((one) => one?.$case === 'data')?.value;

function result(task) {
  assert.equal(task.status.state, DONE, JSON.stringify(task.status));
  assert.equal(task.artifacts.length, 1);
  return dataOf(task.artifacts[0]);
}

function asked(task) {
  assert.equal(task.status.state, ASKS, JSON.stringify(task.status));
  return dataOf(task.status.message).contradictions;
}

async function refused(promise, code) {
  const error = await promise.then(
    (value) => assert.fail(`it was not refused: ${JSON.stringify(value)}`),
    (thrown) => thrown
  );
  if (error instanceof assert.AssertionError) throw error;
  assert.match(`${error.name} ${error.message}`, code);
}

async function collected(stream) {
  const events = [];
  for await (const one of stream) events.push(one.payload);
  return events;
}

const client = await connected(process.env.RECALL_TOKEN);
const send = (...given) => client.sendMessage(said(...given), within());
const kept = {};

async function receiver() {
  const bodies = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    bodies.push({ headers: request.headers, body: JSON.parse(body) });
    response.end();
    server.emit('pushed');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, bodies, url: `http://127.0.0.1:${server.address().port}/hook` };
}

const checks = {
  'the card is read, and the extended one with the token': async () => {
    const card = await client.getAgentCard(within());
    assert.deepEqual(card.skills.map((one) => one.id), ['consolidate_memories', 'review_memories']);
    assert.ok(card.capabilities.streaming && card.capabilities.pushNotifications);
  },
  'without a token nothing is answered': async () => {
    for (const token of [undefined, 'rcl_wrong']) {
      const stranger = await connected(token);
      const promise = stranger.sendMessage(said({ text: 'User: I live in Oslo.' }), within());
      await refused(promise, /401|Unauthorized|token/i);
    }
  },
  'a transcript comes back as typed memories': async () => {
    const task = (kept.first = await send({ text: 'User: I live in Lisbon.' }));
    const [memory] = result(task).memories;
    assert.deepEqual([memory.type, memory.attribute, memory.value], ['fact', 'lives_in', 'Lisbon']);
    assert.match(memory.source.quote, /I live in Lisbon/);
  },
  'a stream goes from the task to its end': async () => {
    const stream = client.sendMessageStream(said({ text: 'User: I work at Acme.' }), within());
    const events = await collected(stream);
    assert.equal(events[0].$case, 'task');
    const states = events.filter((one) => one.$case === 'statusUpdate').map((one) => one.value);
    assert.deepEqual(states.map((one) => one.status.state), [WORKING, DONE]);
    const artifact = events.find((one) => one.$case === 'artifactUpdate').value.artifact;
    assert.equal(dataOf(artifact).memories[0].value, 'Acme');
  },
  'a contradiction is asked': async () => {
    kept.paused = await send({ text: 'User: I live in Porto.' });
    const [question] = asked(kept.paused);
    assert.equal(question.existing[0].value, 'Lisbon');
    assert.equal(question.new.value, 'Porto');
    kept.question = question;
  },
  'an answer in a data part ends the pause': async () => {
    const data = { resolutions: [{ id: kept.question.id, choice: 'keep_new' }] };
    const task = await send({ data }, { taskId: kept.paused.id });
    assert.equal(task.id, kept.paused.id);
    assert.equal(result(task).memories[0].value, 'Porto');
  },
  'an answer in words ends the pause, in a stream': async () => {
    const paused = await send({ text: 'User: I live in Ghent.' });
    asked(paused);
    const answer = said({ text: 'keep_existing' }, { taskId: paused.id });
    const events = await collected(client.sendMessageStream(answer, within()));
    assert.equal(events.at(-1).value.status.state, DONE);
  },
  'a task is got, with as much history as is asked for': async () => {
    const { id } = kept.paused;
    const task = await client.getTask(GetTaskRequest.fromJSON({ id }), within());
    assert.equal(result(task).memories[0].value, 'Porto');
    const ours = task.history.filter((one) => one.role === Role.ROLE_USER);
    assert.deepEqual(ours.map((one) => parts(one)[0].$case), ['text', 'data']);
    const short = GetTaskRequest.fromJSON({ id, historyLength: 1 });
    assert.equal((await client.getTask(short, within())).history.length, 1);
  },
  'what is not there is not found': async () => {
    const request = GetTaskRequest.fromJSON({ id: 'task_unknown' });
    await refused(client.getTask(request, within()), /TaskNotFound/);
  },
  'tasks are listed, page by page': async () => {
    const seen = [];
    let pageToken = '';
    do {
      const request = ListTasksRequest.fromJSON({ pageSize: 2, pageToken });
      const page = await client.listTasks(request, within());
      assert.ok(page.tasks.length <= 2);
      seen.push(...page.tasks.map((one) => one.id));
      kept.total = page.totalSize;
      pageToken = page.nextPageToken;
    } while (pageToken);
    assert.equal(seen.length, kept.total);
    assert.ok(new Set(seen).size === seen.length && seen.includes(kept.first.id));
    const done = ListTasksRequest.fromJSON({ status: 'TASK_STATE_COMPLETED' });
    const { tasks } = await client.listTasks(done, within());
    assert.ok(tasks.length && tasks.every((one) => one.status.state === DONE));
  },
  'a paused task is cancelled, and then is not cancelable': async () => {
    const { id } = await send({ text: 'User: I live in Basel.' });
    const request = CancelTaskRequest.fromJSON({ id });
    assert.equal((await client.cancelTask(request, within())).status.state, CANCELED);
    await refused(client.cancelTask(request, within()), /NotCancelable/);
  },
  'a watcher sees what another call does to the task': async () => {
    const { id } = await send({ text: 'User: I live in Turin.' });
    const stream = client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }), within());
    const first = (await stream.next()).value.payload;
    assert.equal(first.value.status.state, ASKS);
    await send({ text: 'keep_existing' }, { taskId: id });
    const events = await collected(stream);
    assert.equal(events.at(-1).value.status.state, DONE);
  },
  'push configurations are made, got, listed and deleted': async () => {
    kept.hook = await receiver();
    kept.pushed = await send({ text: 'User: I live in Quito.' });
    const taskId = kept.pushed.id;
    const make = (given) =>
      client.createTaskPushNotificationConfig(
        TaskPushNotificationConfig.fromJSON({ taskId, url: kept.hook.url, ...given }),
        within()
      );
    assert.equal((await make({ id: 'one', token: 'secret-one' })).id, 'one');
    assert.equal((await make({ id: 'two', token: 'secret-two' })).id, 'two');
    const one = GetTaskPushNotificationConfigRequest.fromJSON({ taskId, id: 'one' });
    const got = await client.getTaskPushNotificationConfig(one, within());
    assert.deepEqual([got.id, got.url, got.token], ['one', kept.hook.url, '']);
    const two = DeleteTaskPushNotificationConfigRequest.fromJSON({ taskId, id: 'two' });
    await client.deleteTaskPushNotificationConfig(two, within());
    const all = ListTaskPushNotificationConfigsRequest.fromJSON({ taskId });
    const { configs } = await client.listTaskPushNotificationConfig(all, within());
    assert.deepEqual(configs.map((config) => config.id), ['one']);
  },
  'what happens is pushed': async () => {
    const { server, bodies } = kept.hook;
    await send({ text: 'keep_existing' }, { taskId: kept.pushed.id });
    const payloads = () => bodies.map((one) => StreamResponse.fromJSON(one.body).payload);
    while (!payloads().some((one) => one.value.status?.state === DONE)) {
      await once(server, 'pushed', within());
    }
    assert.ok(bodies.every((one) => one.headers['x-a2a-notification-token'] === 'secret-one'));
  },
};

// The older revision of the protocol has no such method.
if (old) delete checks['tasks are listed, page by page'];

for (const [check, hold] of Object.entries(checks)) {
  let why = null;
  try {
    await hold();
  } catch (error) {
    why = `${error.name}: ${error.message}`;
  }
  console.log(JSON.stringify({ check, why }));
}
kept.hook?.server.close();
kept.hook?.server.closeAllConnections();
