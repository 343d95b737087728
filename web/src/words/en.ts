/** All words of the client's page and of its errors, in English. Every other language has the same. */

type Fact = string | number;
const many = (count: number, one: string, more: string) => (count === 1 ? one : more);

export const en = {
  title: "Report a place, keep it yours",
  description: "Report a place drawn at random, with a proven bound on what it gives away.",
  skip: "Choose a place without the map",
  language: "Language",
  deployment: "Survey",
  offline: "Offline",
  map: "Map",
  mapPlaces: "Map of places",
  mapHelp: "Arrow keys move a cursor, with shift faster. Enter picks the place below it. Plus and minus "
    + "zoom, zero shows everything. Places can also be searched by name or taken from a list, in the "
    + "section Your place.",
  zoomIn: "Zoom in",
  zoomOut: "Zoom out",
  zoomAll: "Show everything",
  legendMine: "your place, stays here",
  legendMay: "may be reported",
  legendArea: "(area: probability)",
  legendDrawn: "was sent",
  hint: "Tap your place on the map",
  loading: "Loading the map",
  loadingTable: "Loading the table",
  loadingFailed: "The map cannot be shown",
  tryAgain: "Try again",

  intro: "Your place never leaves this page. What is sent is a place drawn at random: it may lie near "
    + "yours or farther off, and it may be yours itself. For the place that you pick the page says how often.",
  whoTitle: "Who asks, and why",
  collects: "Collected by",
  purpose: "What for",
  until: "Until",
  notSaid: "the operator does not say",
  noEnd: "no end is promised",
  erased: "Reports erased",
  erasedAfter: (count: number) => `after ${count} ${many(count, "day", "days")}`,
  untilOver: "the last day is over",
  whoSigned: "Signed by the operator together with the survey; nobody can change it unnoticed.",
  checked: "What was checked, exactly",
  auditAll: "Check all pairs",

  placeTitle: "Your place",
  placePick: "Tap it on the map. With the keyboard: go to the map, move the cursor with the arrow keys, "
    + "press Enter.",
  search: "Search by name",
  searchHint: "Street or landmark",
  searchResults: "Places of that name",
  searchCount: (count: number) => count === 0 ? "No street or landmark has this name."
    : `${count} ${many(count, "place", "places")}; the search runs in this page and is sent nowhere.`,
  noNames: "This map has no names to search for.",
  here: "Use my position",
  hereNote: "Your browser finds your position, and may ask a location service of its maker, which then "
    + "knows it. The survey's server does not learn it.",
  hereWait: "Waiting for your position…",
  hereFailed: "This browser did not tell your position. Tap it on the map instead.",
  hereOff: (metres: string) => `Your position, to within ${metres} as the browser says.`,
  byList: "Choose from a list instead",
  listArea: "Part of the map",
  listPlace: "Place",
  listPick: "Take this place",
  numbers: "Latitude, longitude",
  numbersTake: "Take",
  numbersWrong: "Two numbers in degrees, such as 41.9022, 12.4539.",
  near: (name: string) => `near ${name}`,
  placeSaid: (km: string) => `. The nearest place that the table knows is ${km} away.`,
  placePoint: ". It is drawn at as it is, and not moved to a known place: this table covers every point of its area.",
  placeBall: ". A point is drawn for it as it is, rounded to some metres: no map of known places is needed.",
  snapBall: (factor: string, km: string) => `Your report comes from the row of a known place at most ${km} away, or from `
    + `one row that all share: odds between two places may change by a further factor of ${factor} for that, at most.`,
  snapSaid: (factor: string, km: string, limit: string) => `It stands for yours, and the step counts like `
    + `distance: odds between your place and another may change by a further factor of ${factor} for your `
    + `${km}, and as much for the other's step, up to ${limit}. Outside the area its nearest point stands for you.`,
  hear: (km: string, wind: string, near: string) =>
    `${km} ${wind} of the centre; nearest known place ${near} away`,
  listed: (km: string, wind: string) => `${km} ${wind} of the centre`,
  listedArea: (wind: string, km: string, count: string) => `${wind}, ${km} from the centre, ${count} places`,
  placeTaken: (km: string) => `Place taken. Reports would lie ${km} away on average.`,

  steps: { place: "Where are you?", told: "What would it tell?", send: "Send it?", done: "It was reported" },
  stepOf: (step: number, all: number) => `Step ${step} of ${all}`,
  back: "Back",
  next: "Next",
  spreadTitle: "What would be reported",
  spreadDone: "What was reported",
  spreadFrom: "It was drawn from the row of your place. Reports from there:",
  spreadItself: "of reports name your place itself",
  spreadHalf: "from your place at most, in half of all reports",
  spreadMost: "at most, in 9 of 10",
  spreadSaid: (mean: string, top: string) => `On average reports lie ${mean} from your place. The likeliest `
    + `single one has ${top}.`,
  spreadRecord: (km: string) => ` Your place here means the known place that stands for it, ${km} away.`,
  spreadNever: "Your place itself is never reported: it is none of the places that reports can name.",
  spreadLater: "What would be reported is known after the first of two draws: only then the rows that it is drawn "
    + "from come here. This page checks them before it draws.",
  howTable: "One draw, in this page, from the row of your place; what it gives is sent.",
  howEverywhere: "Two draws, both in this page: first a corner of the small triangle that your place lies in, the nearer the "
    + "likelier, then a report from its row; the report is sent. Every report is drawn and paid for anew: an answer "
    + "that was kept would tell where in the triangle you are.",
  howPanda: "Two draws, both in this page: first an area or a stand-in for your place, then a report from its row. "
    + "Only the report is sent.",
  howBall: "Two draws. First a point near your place is drawn and sent; the rows of the places around it come "
    + "back. Then a report is drawn from them and sent. Both together are what epsilon and delta count.",
  howAnchors: "Two draws. First a set of places, the anchors, is drawn and sent; when the round closes, the server "
    + "makes rows for everybody's anchors. Then a report is drawn from yours and sent. Both together are what "
    + "epsilon and delta count.",
  chartMean: "average",
  chartHere: "your place",
  chartSaid: (half: string, most: string, top: string) => `Distances of reports: half within ${half}, nine in `
    + `ten within ${most}; the likeliest single one has ${top}`,

  meaningTitle: "What somebody could learn",
  meaningLead: "Suppose somebody knows that you were at one of two places, finds both equally likely, and "
    + "sees your report. How often do they guess right? Without a report it is 50 times in 100.",
  meaningHere: "what this table allows, from your place",
  meaningMost: "what is promised to everyone",
  apart: (km: string) => `${km} apart`,
  atMost: (guess: string) => `at most ${guess}`,
  oddsChange: (factor: string) => `Odds change by a factor of ${factor} at most.`,
  fromHere: (count: string, km: string, guess: string) =>
    ` From your place, with the ${count} ${count === "1" ? "place" : "places"} within ${km}: ${guess}.`,
  compared: (count: string, own: string, promised: string) => `Your place was compared with all ${count} `
    + `others: epsilon ${own} per km at most, ${promised} is promised.`,
  comparedPoint: (own: string, promised: string) => `Every point of the area was compared with every other: epsilon `
    + `${own} per km at most, ${promised} is promised.`,
  comparedPanda: (count: string, violation: string, delta: string) => `Your place was compared with all ${count} `
    + `others: what you release tells more than that with probability ${violation} at most; ${delta} is promised.`,
  comparedBall: (promised: string) => `The first draw tells epsilon ${promised} per km at most, wherever you are. The `
    + "second is checked when its rows are here.",
  saveDelta: (delta: string) => ` More is told with probability ${delta} at most.`,
  protectsLittle: " Such an epsilon protects little at 500 m.",
  comparing: "Comparing your place with all others…",
  epsilonWhat: "What is epsilon? What are odds?",
  oddsExplained: "Odds compare two possibilities: 3 to 1 means that one is held three times as likely as the "
    + "other. A report changes the odds between two places by a factor, and the factor has a ceiling.",
  epsilonExplained: "Epsilon sets that ceiling: it is e to the power of epsilon times the distance in km "
    + "between the two places. A small epsilon protects more and makes reports less exact; near places are "
    + "protected most.",
  deltaExplained: "Delta, where a survey has one, is how often the ceiling may fail: with that probability a "
    + "release may tell more, even everything. Deltas of several reports add up.",

  booksTitle: "What you have given away",
  keepsAnswer: "A place keeps its answer for the period: whoever could choose among several draws, or "
    + "average them, would give the place away.",
  limits: "Limits and memory",
  limitLabel: (period: string) => `Most epsilon in a ${period}, per km`,
  limitDelta: (period: string) => `Most delta in a ${period}`,
  spentDelta: (spent: string, limit: string) => `Delta ${spent} of ${limit}.`,
  limitKeep: "Keep",
  forget: "Forget what was drawn",
  forgetNote: "Forgetting erases from this browser which places were drawn for, and what waits to be sent. What "
    + "was spent stays spent, and the same place would be drawn and paid for again.",
  forgotten: "What was drawn is forgotten; what was spent stays spent.",
  spent: (spent: string, limit: string, period: string) =>
    `Epsilon ${spent} of ${limit} per km is spent this ${period}.`,
  spentLost: (period: string, ends: string) => `The books of this browser were lost, so what was spent is `
    + `unknown. The next ${period} begins in ${ends}.`,
  spentFree: "This place was drawn for already, so it costs nothing more.",
  spentCost: (cost: string) => `A new place costs ${cost}.`,
  spentRest: (period: string, ends: string) => `Costs add up over places: somebody who sees all your reports `
    + `of a ${period} learns at most that much per km. The next ${period} begins in ${ends}.`,
  advice: (count: number, period: string, epsilon: string) => `The operator suggests ${count} `
    + `${many(count, "report", "reports")} a ${period}: epsilon ${epsilon}. The limit is yours, and this page `
    + "keeps it.",

  token: "Your token or invitation, from the operator",
  tokenKeep: "keep it until this tab is closed",
  tokenWhat: "What is a token?",
  tokenExplained: "A long word that the operator gave you, or that was in your link. It shows that you may "
    + "take part, and it lets the server count how often. All reports with one token are known to be one "
    + "person's; it says nothing about where you are.",
  tokenWrong: "A token begins with pmt_, an invitation with pmi_; the operator hands them out.",
  enrolled: "Your invitation was exchanged for a token, which stays in this browser: an invitation works once.",
  notEnrolled: (why: string) => `The invitation was not accepted: ${why}.`,
  tokenRefused: (why: string) => `The token was not accepted: ${why}.`,
  send: "Draw a place and send it",
  sendNote: "One step: a place is drawn and sent, and you see it once it was sent. Choosing whether to send after "
    + "seeing it would tell something that no epsilon covers.",
  sendFree: "This place has its answer already; sending it again tells nothing more.",
  sending: "Drawing and sending…",
  collect: "Collect one-use tokens",
  collectFirst: "Reports of this survey name nobody: they come with tokens that work once, which this page collects "
    + "with yours. The server sees who collects, and later a report that is nobody's.",
  collecting: "Collecting one-use tokens…",
  collected: (count: number) => `${count} one-use ${many(count, "token is", "tokens are")} here for this period. Let some `
    + "time pass before you report, or report from another network: address and time would join the two.",
  goOn: "Go on with this report",
  unfinished: "The first draw for this place is made, paid for and sent; nothing is drawn or paid again. Go on to "
    + "the second.",
  waitsForRound: (round: number) => `Your anchors are in round ${round}, which is not solved yet. This page asks `
    + "again by itself; it may also be closed and the same place picked later in this period.",
  sent: (km: string, near: string) => `Sent: a place ${km} from yours${near}. Thank you.`,
  sentItself: "Sent: the very place that stands for yours. This happens as often as the page said. Thank you.",
  sentBefore: "This place was reported in this period already. What was sent is erased here, and nothing more "
    + "is needed.",
  refused: (why: string) => `The server refused the report: ${why}.`,
  closed: "This survey is closed and takes no reports.",
  checkFailed: "Nothing can be drawn: the privacy check failed for this table.",
  replacedSay: "The table was replaced. Say above whether to use the new one.",
  nothingMore: (why: string) => `Nothing more can be drawn: ${why}.`,
  waiting: (count: number) => count === 1
    ? "One report is drawn and waits for the network; it goes out by itself. This page may stay open or be opened again later."
    : `${count} reports are drawn and wait for the network; they go out by themselves. This page may stay open or be opened again later.`,
  waitingToken: (count: number) => `${many(count, "One report waits", `${count} reports wait`)} for a token.`,

  signed: (key: string, first: boolean) =>
    `Signed by the operator, with key ${key}, ${first ? "seen here for the first time" : "the one you know"}`,
  waitSignature: "Waiting for the operator's signature…",
  waitTable: "Waiting for the table…",
  waitOffline: "Preparing to work offline…",
  needsNet: "Needs a network: this browser keeps nothing",
  worksOffline: "Works offline from now on; reports then wait for the network",
  auditing: "Checking its privacy in this page…",
  auditingShare: (percent: number) => `Checking its privacy in this page: ${percent} %`,
  auditingAll: "Checking all pairs…",
  auditFailed: (why: string) => `The privacy check failed: ${why}`,
  auditBad: (found: string, claimed: string) => `The table is not as private as it says: epsilon ${found} `
    + `instead of ${claimed} per km. Nothing can be reported with it.`,
  auditGood: (pairs: string) => `Privacy checked in this page: all ${pairs} pairs`,
  auditEverywhere: (triangles: string) => `Privacy checked in this page: every point of all ${triangles} triangles`,
  auditEverywhereSaid: (triangles: string, pairs: string, seconds: string, found: string, claimed: string) =>
    `This page checked that ${triangles} triangles cover the area, and compared every point of each, and all ${pairs} `
    + `pairs of corners, in ${seconds} s, on the integers that are drawn from. The largest epsilon is ${found} per km; `
    + `${claimed} is promised, between any two points.`,
  auditPanda: (pairs: string, violation: string, delta: string) =>
    `Privacy checked in this page: both phases, all ${pairs} pairs, probability of more ${violation}; ${delta} is promised`,
  auditPandaPart: (km: string, covered: string) =>
    `Privacy checked in this page: rows of all pairs within ${km}, both phases for ${covered} pairs; yours before anything is drawn`,
  auditBall: () => "Privacy of the first draw holds by proof at every place; the rows of the second are checked when they come",
  auditPandaSaid: (pairs: string, seconds: string, epsilon: string, first: string, violation: string, delta: string) =>
    `This page computed, in ${seconds} s, for all ${pairs} pairs of places how often both phases together tell more `
    + `than epsilon ${epsilon} per km: with probability ${violation} at most; ${delta} is promised. The first phase `
    + `alone tells epsilon ${first} per km at most. All of it on the integers that are drawn from.`,
  auditPandaPartSaid: (pairs: string, all: string, seconds: string, violation: string, delta: string) =>
    `In ${seconds} s this page computed for ${pairs} of ${all} pairs of places how often both phases together tell `
    + `more than promised: with probability ${violation} at most; ${delta} is promised. The others were not looked at. `
    + "Your own place is compared with every other one before anything is drawn.",
  auditBallSaid: (claimed: string) =>
    `The first draw tells epsilon ${claimed} per km at most at every place, by a law in closed form: there is no table to `
    + "compare. The rows of your ball come with the places of their records, are proved to be those that the operator signed and are compared over all pairs "
    + "when they come, and nothing is drawn from them otherwise.",
  auditPart: (km: string, count: string) =>
    `Privacy checked in this page: all pairs within ${km}, ${count} others at random`,
  auditComplete: (pairs: string, seconds: string, found: string, claimed: string) =>
    `This page compared all ${pairs} pairs of places over all outputs, in ${seconds} s, on the integers that `
    + `are drawn from. The largest epsilon among them is ${found} per km; ${claimed} is promised.`,
  auditSampled: (km: string, covered: string, pairs: string, sampled: string, found: string, claimed: string) =>
    `This page compared all pairs of places nearer than ${km} (${covered} of ${pairs} pairs, or proved them by `
    + `a bound), and ${sampled} of all pairs drawn at random. The largest epsilon among them is ${found} per `
    + `km; ${claimed} is promised. Pairs farther apart were not all compared. Your own place is compared with `
    + "every other one before anything is drawn.",
  logGood: (size: string) => `table and survey are among its ${size} entries, and it continues what was seen here before; its head`,
  factLog: "Public log",
  factTable: "Table",
  factRecords: "Records",
  factPromised: "Promised",
  factMethod: "Method",
  factPhases: "How",
  factDelta: (epsilon: string, delta: string) => `epsilon ${epsilon} per km, save with probability delta ${delta}`,
  factLoss: "Average loss",
  factRounding: "Rounding",
  factIdentity: "Identity",
  factKey: "Key",
  factMade: "Made",
  factVersion: (name: string, version: number, size: string) => `${name}, version ${version}, ${size}`,
  factCounts: (records: string, outputs: string) => `${records} places, ${outputs} outputs`,
  factEpsilon: (epsilon: string) => `epsilon ${epsilon} per km`,
  factLossSaid: (loss: string) => `${loss} as the operator counts it`,
  factGap: (gap: string) => `, at most ${gap} above the best possible`,
  factCost: (cost: string) => `cost ${cost} of that`,
  replacedTitle: "The table was replaced since your last visit",
  replacedSaid: (version: number, epsilon: string) => `Version ${version} is in force now, with epsilon `
    + `${epsilon} per km. It has the operator's signature, and this page checks its privacy like the first one's.`,
  replacedUse: "Use the new table",
  tableRefused: "This table is refused",
  keyChanged: "The operator's key has changed",
  keyKnown: "Known: ",
  keyName: "Name of the new key",
  keyAsk: "Name of the new key, as the operator told you ",
  keyAccept: "Accept",
  keyWrong: "That is not the name of the key that this server shows.",
  noConnection: "No connection",
  stops: "This page stops here",

  winds: ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"],
  centre: "centre",
  below: "below 0.1 %",
  million: "more than a million",
  nearlyAlways: "nearly always",
  inHundred: (count: string) => `${count} times in 100`,
  seconds: (count: number) => `${count} ${many(count, "second", "seconds")}`,
  minutes: (count: number) => `${count} ${many(count, "minute", "minutes")}`,
  hours: (count: number) => `${count} ${many(count, "hour", "hours")}`,
  days: (count: number) => `${count} ${many(count, "day", "days")}`,
  day: "day",
  week: "week",
  hour: "hour",
  periodOf: (span: string) => `period of ${span}`,

  /** What is wrong, and what helps. */
  problems: {
    unknown: () => ["something unknown went wrong", ""],
    server: (message: Fact, remedy: Fact) => [String(message), String(remedy)],
    offline: () => ["the server cannot be reached", "Try again later."],
    unencrypted: () => [
      "this page was loaded without encryption, and browsers then lock the tools that it needs",
      "Open it with https.",
    ],
    noneUsable: () => [
      "this server has surveys, but none about places on a map with a proven guarantee, which are those that this "
        + "page takes part in",
      "Use the client of the panda-mdp library for others.",
    ],
    noDeployment: () => ["this server has no survey yet", "Come back later."],
    notAnnounced: () => ["the table that arrived is not the one that was announced", "Load the page again."],
    tooLong: () => ["the table is longer than announced", "Load the page again."],
    keyName: () => ["the server's key does not have the name that it goes by", "Tell the operator."],
    keyChanged: (before: Fact, now: Fact) => [
      `the operator's key was ${before} and is now ${now}`,
      "Nothing can be reported until you have asked the operator, by another way than this page, whether "
        + "the key was really replaced.",
    ],
    limit: (value: Fact) => [`a limit is ${value}; it must be positive and finite`, "Give another one."],
    booksLost: () => [
      "the books of this browser were lost, so what was spent before is unknown",
      "Wait for the next period.",
    ],
    otherUnit: (unit: Fact) => [`it costs epsilon per ${unit}, and limits are per km`, ""],
    reportCost: (cost: Fact, limit: Fact) => [
      `one report costs epsilon ${cost} and ${limit} is allowed`, "Allow more in the limits, or do not take part.",
    ],
    periodSpent: (spent: Fact, limit: Fact, cost: Fact) => [
      `epsilon ${spent} of ${limit} is spent in this period and a report costs ${cost}`,
      "Wait for the next period, or allow more in the limits.",
    ],
    limitDelta: (value: Fact) => [`a limit of delta is ${value}; it is a probability below 1`, "Give another one."],
    reportDelta: (cost: Fact, limit: Fact) => [
      `one report costs delta ${cost} and ${limit} is allowed`, "Allow more in the limits, or do not take part.",
    ],
    periodDelta: (spent: Fact, limit: Fact, cost: Fact) => [
      `delta ${spent} of ${limit} is spent in this period and a report costs ${cost}`,
      "Wait for the next period, or allow more in the limits.",
    ],
    tooLarge: () => [
      "this survey is too large to be checked in a browser", "Use the client of the panda-mdp library for it.",
    ],
    outside: () => ["the place is not in the area of this survey", "Pick one inside the area that is drawn."],
    needsReport: () => [
      "this survey asks its server between two draws, so a place alone cannot be drawn for", "Use report with a token.",
    ],
    otherBall: () => [
      "the server sent places that do not reach into the area around the point that was drawn",
      "Nothing is drawn from them. Tell the operator.",
    ],
    otherRound: () => [
      "the server sent rows of other anchors, outputs or another round", "Nothing is drawn from them. Tell the operator.",
    ],
    roundFailed: (round: Fact) => [
      `round ${round} failed`, "Go on when another is open: the same anchors are used, nothing is drawn again.",
    ],
    roundOpen: (round: Fact) => [`round ${round} is not solved yet`, "Go on later: nothing is drawn again."],
    noRound: () => ["no round is open", "Go on when the operator has opened one: nothing is drawn again."],
    oneSet: (round: Fact) => [
      `another place's anchors are in round ${round} already, and a round takes one set of a person`,
      "Finish that report, or wait for the next round.",
    ],
    seal: () => [
      "an entry of this browser's books does not match its seal; they are damaged",
      "Clear this site's data; the running period then counts as spent.",
    ],
    erased: () => ["what was drawn was erased", ""],
    replaced: () => ["the table was replaced since it was drawn", ""],
    notFinite: () => ["a signed number is not finite", "Tell the operator."],
    notPrintable: () => ["a signed field holds a character that is not printable ASCII", "Tell the operator."],
    noEd25519: () => [
      "this browser cannot check Ed25519 signatures, or the key is damaged",
      "Use a current Firefox, Safari, Chrome or Edge.",
    ],
    signature: () => [
      "the operator's signature does not match: the table was changed on the way, or somebody else made it",
      "Do not report anything. Tell the operator.",
    ],
    otherKey: () => [
      "the table was signed with another key than the operator's", "Do not report anything. Tell the operator.",
    ],
    noPlace: () => ["the place is not a latitude in [-90, 90] and a longitude in [-180, 360] degrees", ""],
    smallArea: (places: Fact, size: Fact) => [
      `this survey has ${places} places in ${size} square km: with so few, taking part tells where you are`,
      "Do not report anything. Tell the operator.",
    ],
    holes: (km: Fact, limit: Fact) => [
      `the area of this survey has points ${km} km from all of its places, and this page allows ${limit}`,
      "Do not report anything. Tell the operator.",
    ],
    quotaSpent: (quota: Fact) => [
      `this survey takes ${quota} reports of one person in its period, and as many are drawn here`,
      "Wait for the next period: nothing is drawn that would be refused.",
    ],
    logDenied: () => [
      "the server says that it has no public log: it could show everybody another table",
      "Do not report anything. Tell the operator.",
    ],
    noStatement: () => [
      "what the operator signed about this survey is no statement", "Do not report anything. Tell the operator.",
    ],
    saidOtherwise: () => [
      "the server says other things about this survey than its operator signed",
      "Do not report anything. Tell the operator.",
    ],
    older: (now: Fact, before: Fact) => [
      `the server shows version ${now} of this survey, which is older than version ${before}, seen here before`,
      "Somebody shows you a past state. Do not report anything.",
    ],
    twoStatements: () => [
      "the operator signed two different statements about one version of this survey",
      "Do not report anything.",
    ],
    logForked: () => [
      "the operator's public log was changed: it is no longer the one that was seen here before",
      "Do not report anything. Compare the log's head with somebody else's.",
    ],
    notLogged: () => [
      "what the operator signed about this survey is not in the public log", "Do not report anything.",
    ],
    otherTable: () => ["the table is not what the survey says it is", "Do not report anything; tell the operator."],
    noOneUse: () => [
      "no one-use token is here for this period", "Collect them some time before you report, not with the report.",
    ],
    noIssuer: () => [
      "the key of one-use tokens is not the only one of its period in the public log, or is none",
      "Do not report anything. Tell the operator.",
    ],
    notIssued: () => [
      "the server did not sign the one-use tokens that it was asked for", "Do not report anything. Tell the operator.",
    ],
    otherPeriod: () => [
      "the server signs one-use tokens of another period than the one that this device's clock says",
      "Set the clock right, or try again in a minute.",
    ],
    roundOver: (round: Fact) => [`round ${round} is over by the public log`, "Do not report anything. Tell the operator."],
    tooFine: () => ["the lattice of this survey is finer than points can be sent of", "Tell the operator."],
    noTable: () => ["this survey has no table", ""],
    noMap: () => ["this table is not about places on a map", ""],
    metric: (kind: Fact) => [
      kind === "graph" ? "the privacy of this table follows streets or density, a graph of the operator's: how far apart places are is then the operator's word"
        : `the metric ${kind} is not known here`,
      "Nothing was drawn: here distances are those of the map. The Python client draws where its limits allow it.",
    ],
    damaged: (what: Fact) => [`${what}; the file is damaged`, "Load the page again."],
    checksum: () => [
      "the checksum does not match the contents; the file is truncated or damaged", "Load the page again.",
    ],
    notTable: () => ["not a table: it starts differently", ""],
    otherFormat: () => ["the file has another format or version than this page reads", ""],
    notPrivate: () => [
      "the page's own check found two places that reports tell apart better than promised",
      "Do not use this survey. Tell the operator.",
    ],
    notAudited: () => ["this place was not compared with all others yet", "Wait a moment."],
  } satisfies Record<string, (...facts: Fact[]) => string[]>,

  /** What the server's stable codes mean, for languages that it does not speak. */
  codes: {
    unauthorised: "", token_expired: "", forbidden: "", not_found: "", conflict: "", round_closed: "",
    wrong_version: "", too_large: "", invalid: "", rate_limited: "", unavailable: "", internal: "",
  },
};

/** The shape of a language: what English has, each word as a word and each sentence with its facts. */
export type Words = {
  [K in keyof typeof en]: (typeof en)[K] extends string ? string : (typeof en)[K];
};
